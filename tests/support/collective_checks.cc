#include "tests/support/collective_checks.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "tests/support/collective_model.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/math/with_type.h"

namespace drun::test {
namespace {

using worker::with_type;

using Counts = std::vector<std::size_t>;

// Small integers: sums of eight fit into i8, and products are powers of two.
long long number(ReduceOp op, int rank, std::size_t i) {
  const auto r = rank_index(rank);
  if (op == ReduceOp::Product) return static_cast<long long>(1 + (r + i) % 2);
  if (op == ReduceOp::Band || op == ReduceOp::Bor || op == ReduceOp::Bxor) {
    return static_cast<long long>((r * 37 + i * 11) % 128);
  }
  return static_cast<long long>(1 + (r * 7 + i) % 5);
}

long long combine(ReduceOp op, long long left, long long right) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Avg:
      return left + right;
    case ReduceOp::Product:
      return left * right;
    case ReduceOp::Min:
      return left < right ? left : right;
    case ReduceOp::Max:
      return left < right ? right : left;
    case ReduceOp::Band:
      return left & right;
    case ReduceOp::Bor:
      return left | right;
    case ReduceOp::Bxor:
      return left ^ right;
  }
  return 0;
}

template <typename T>
T as(long long value) {
  if constexpr (std::is_class_v<T>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <typename T>
T reduced(ReduceOp op, int ranks, std::size_t i) {
  long long value = number(op, 0, i);
  for (int rank = 1; rank < ranks; ++rank) value = combine(op, value, number(op, rank, i));
  if (op != ReduceOp::Avg) return as<T>(value);
  if constexpr (std::is_class_v<T>) return T(static_cast<float>(value) / static_cast<float>(ranks));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value) / static_cast<T>(ranks);
  return T();
}

// Memory from the rig's allocator.
template <typename T>
class Buffer {
 public:
  Buffer(const CollectiveRig& rig, std::size_t count) : count_(count) {
    if (rig.alloc) {
      memory_ = rig.alloc(count * sizeof(T));
    } else {
      own_.resize(count + 1);
    }
  }
  T* data() { return memory_ ? static_cast<T*>(memory_.get()) : own_.data(); }
  std::size_t count() const { return count_; }
  T& operator[](std::size_t i) { return data()[i]; }

 private:
  std::size_t count_;
  std::shared_ptr<void> memory_;
  std::vector<T> own_;
};

template <typename T>
void expect_all(const CollectiveRig& rig, const Call& call, Buffer<T>& is,
                const std::function<T(std::size_t)>& should) {
  for (std::size_t i = 0; i < is.count(); ++i) {
    const T wanted = should(i);
    if (std::memcmp(&is[i], &wanted, sizeof(T)) == 0) continue;
    throw std::runtime_error(worker::to_string(call) + " of " + std::to_string(rig.size) +
                             " ranks is wrong on rank " + std::to_string(rig.rank) + " at " +
                             std::to_string(i) + ": " + std::to_string(float(is[i])) + ", not " +
                             std::to_string(float(wanted)));
  }
}

template <typename T>
void fill(const CollectiveRig& rig, ReduceOp op, Buffer<T>& data, std::size_t from = 0) {
  for (std::size_t i = 0; i < data.count(); ++i) data[i] = as<T>(number(op, rig.rank, from + i));
}

template <typename T>
struct Model {
  const CollectiveRig& rig;
  DataType type = data_type<T>();

  Call call(Operation operation, ReduceOp op, std::size_t count, int root = 0) const {
    Call result;
    result.operation = operation;
    result.type = type;
    result.op = op;
    result.root = root;
    result.count = count;
    return result;
  }

  void all_reduce(ReduceOp op, std::size_t count) const {
    Buffer<T> data(rig, count);
    fill(rig, op, data);
    Call c = call(Operation::AllReduce, op, count);
    c.input = c.output = data.data();
    rig.run(c);
    expect_all<T>(rig, c, data, [&](std::size_t i) { return reduced<T>(op, rig.size, i); });
  }

  void reduce(ReduceOp op, std::size_t count, bool is_in_place) const {
    const int root = rig.size - 1;
    Buffer<T> data(rig, count);
    Buffer<T> result(rig, count);
    fill(rig, op, data);
    Call c = call(Operation::Reduce, op, count, root);
    c.input = data.data();
    const bool is_root = rig.rank == root;
    if (is_root) c.output = is_in_place ? data.data() : result.data();
    rig.run(c);
    if (is_root) {
      expect_all<T>(rig, c, is_in_place ? data : result,
                    [&](std::size_t i) { return reduced<T>(op, rig.size, i); });
    }
    if (is_root && is_in_place) return;
    expect_all<T>(rig, c, data, [&](std::size_t i) { return as<T>(number(op, rig.rank, i)); });
  }

  void reduce_scatter(ReduceOp op, std::size_t count) const {
    Buffer<T> data(rig, count * rank_index(rig.size));
    Buffer<T> part(rig, count);
    fill(rig, op, data);
    Call c = call(Operation::ReduceScatter, op, count);
    c.input = data.data();
    c.output = part.data();
    rig.run(c);
    const std::size_t begin = rank_index(rig.rank) * count;
    expect_all<T>(rig, c, part, [&](std::size_t i) { return reduced<T>(op, rig.size, begin + i); });
  }

  // The number that `rank` has at index `i`, for operations that only move data.
  static T of(int rank, std::size_t i) {
    return as<T>(static_cast<long long>((rank_index(rank) * 31 + i) % 127));
  }

  void broadcast(std::size_t count, int root) const {
    Buffer<T> data(rig, count);
    for (std::size_t i = 0; i < count; ++i) data[i] = of(rig.rank, i);
    Call c = call(Operation::Broadcast, ReduceOp::Sum, count, root);
    c.input = c.output = data.data();
    rig.run(c);
    expect_all<T>(rig, c, data, [&](std::size_t i) { return of(root, i); });
  }

  void gather(std::size_t count, std::optional<int> root) const {
    Buffer<T> mine(rig, count);
    Buffer<T> all(rig, count * rank_index(rig.size));
    for (std::size_t i = 0; i < count; ++i) mine[i] = of(rig.rank, i);
    Call c = call(root ? Operation::Gather : Operation::AllGather, ReduceOp::Sum, count,
                  root.value_or(0));
    c.input = mine.data();
    const bool is_mine = !root || *root == rig.rank;
    if (is_mine) c.output = all.data();
    rig.run(c);
    if (!is_mine) return;
    expect_all<T>(rig, c, all,
                  [&](std::size_t i) { return of(static_cast<int>(i / count), i % count); });
  }

  void scatter(std::size_t count, int root) const {
    Buffer<T> all(rig, count * rank_index(rig.size));
    Buffer<T> mine(rig, count);
    for (std::size_t i = 0; i < all.count(); ++i) all[i] = of(root, i);
    Call c = call(Operation::Scatter, ReduceOp::Sum, count, root);
    if (rig.rank == root) c.input = all.data();
    c.output = mine.data();
    rig.run(c);
    expect_all<T>(rig, c, mine,
                  [&](std::size_t i) { return of(root, rank_index(rig.rank) * count + i); });
  }

  void all_to_all(std::size_t count) const {
    Buffer<T> in(rig, count * rank_index(rig.size));
    Buffer<T> out(rig, count * rank_index(rig.size));
    for (std::size_t i = 0; i < in.count(); ++i) in[i] = of(rig.rank, i);
    Call c = call(Operation::AllToAll, ReduceOp::Sum, count);
    c.input = in.data();
    c.output = out.data();
    rig.run(c);
    expect_all<T>(rig, c, out, [&](std::size_t i) {
      return of(static_cast<int>(i / count), rank_index(rig.rank) * count + i % count);
    });
  }

  // The number of elements that `from` sends to `to`.
  static std::size_t share(int from, int to, std::size_t most) {
    return (rank_index(from) * 5 + rank_index(to) * 3) % 4 * most / 3;
  }

  void gather_v(std::size_t most, std::optional<int> root) const {
    Counts counts;
    std::size_t total = 0;
    for (int rank = 0; rank < rig.size; ++rank) total += counts.emplace_back(share(rank, 0, most));
    Buffer<T> mine(rig, counts[rank_index(rig.rank)]);
    Buffer<T> all(rig, total);
    for (std::size_t i = 0; i < mine.count(); ++i) mine[i] = of(rig.rank, i);
    Call c = call(root ? Operation::Gather : Operation::AllGather, ReduceOp::Sum, mine.count(),
                  root.value_or(0));
    c.is_uneven = true;
    c.input = mine.data();
    const bool is_mine = !root || *root == rig.rank;
    if (is_mine) {
      c.output = all.data();
      c.counts_out = counts.data();
    }
    rig.run(c);
    if (!is_mine) return;
    std::vector<T> should;
    for (int rank = 0; rank < rig.size; ++rank) {
      for (std::size_t i = 0; i < counts[rank_index(rank)]; ++i) should.push_back(of(rank, i));
    }
    expect_all<T>(rig, c, all, [&](std::size_t i) { return should[i]; });
  }

  void scatter_v(std::size_t most, int root) const {
    Counts counts;
    std::size_t total = 0;
    std::size_t before = 0;
    for (int rank = 0; rank < rig.size; ++rank) {
      if (rank == rig.rank) before = total;
      total += counts.emplace_back(share(rank, 1, most));
    }
    Buffer<T> all(rig, total);
    Buffer<T> mine(rig, counts[rank_index(rig.rank)]);
    for (std::size_t i = 0; i < total; ++i) all[i] = of(root, i);
    Call c = call(Operation::Scatter, ReduceOp::Sum, mine.count(), root);
    c.is_uneven = true;
    c.output = mine.data();
    if (rig.rank == root) {
      c.input = all.data();
      c.counts_in = counts.data();
    }
    rig.run(c);
    expect_all<T>(rig, c, mine, [&](std::size_t i) { return of(root, before + i); });
  }

  void reduce_scatter_v(std::size_t most) const {
    Counts counts;
    std::size_t total = 0;
    std::size_t before = 0;
    for (int rank = 0; rank < rig.size; ++rank) {
      if (rank == rig.rank) before = total;
      total += counts.emplace_back(share(rank, 2, most));
    }
    Buffer<T> data(rig, total);
    Buffer<T> part(rig, counts[rank_index(rig.rank)]);
    fill(rig, ReduceOp::Sum, data);
    Call c = call(Operation::ReduceScatter, ReduceOp::Sum, part.count());
    c.is_uneven = true;
    c.input = data.data();
    c.output = part.data();
    c.counts_in = counts.data();
    rig.run(c);
    expect_all<T>(rig, c, part,
                  [&](std::size_t i) { return reduced<T>(ReduceOp::Sum, rig.size, before + i); });
  }

  void all_to_all_v(std::size_t most) const {
    Counts to;
    Counts from;
    std::size_t sent = 0;
    std::vector<T> should;
    for (int rank = 0; rank < rig.size; ++rank) {
      sent += to.emplace_back(share(rig.rank, rank, most));
      from.push_back(share(rank, rig.rank, most));
      std::size_t before = 0;
      for (int i = 0; i < rig.rank; ++i) before += share(rank, i, most);
      for (std::size_t i = 0; i < from.back(); ++i) should.push_back(of(rank, before + i));
    }
    Buffer<T> in(rig, sent);
    Buffer<T> out(rig, should.size());
    for (std::size_t i = 0; i < sent; ++i) in[i] = of(rig.rank, i);
    Call c = call(Operation::AllToAll, ReduceOp::Sum, 0);
    c.is_uneven = true;
    c.input = in.data();
    c.output = out.data();
    c.counts_in = to.data();
    c.counts_out = from.data();
    rig.run(c);
    expect_all<T>(rig, c, out, [&](std::size_t i) { return should[i]; });
  }
};

}  // namespace

bool has_op(DataType type, ReduceOp op) {
  const bool is_bits = op == ReduceOp::Band || op == ReduceOp::Bor || op == ReduceOp::Bxor;
  if (is_bits) return !is_floating_point(type);
  return op != ReduceOp::Avg || is_floating_point(type);
}

const std::vector<DataType>& all_types() {
  static const std::vector<DataType> types = {
      DataType::U8,  DataType::I8,  DataType::I16,  DataType::I32, DataType::U32, DataType::I64,
      DataType::U64, DataType::F16, DataType::BF16, DataType::F32, DataType::F64};
  return types;
}

const std::vector<ReduceOp>& all_ops() {
  static const std::vector<ReduceOp> ops = {ReduceOp::Sum,  ReduceOp::Product, ReduceOp::Min,
                                            ReduceOp::Max,  ReduceOp::Band,    ReduceOp::Bor,
                                            ReduceOp::Bxor, ReduceOp::Avg};
  return ops;
}

void check_reductions(const CollectiveRig& rig, DataType type, ReduceOp op, std::size_t count) {
  with_type(type, [&](auto zero) {
    const Model<decltype(zero)> model{.rig = rig};
    model.all_reduce(op, count);
    model.reduce(op, count, false);
    model.reduce(op, count, true);
    model.reduce_scatter(op, count);
  });
}

void check_moves(const CollectiveRig& rig, DataType type, std::size_t count) {
  with_type(type, [&](auto zero) {
    const Model<decltype(zero)> model{.rig = rig};
    const int last = rig.size - 1;
    model.broadcast(count, 0);
    model.broadcast(count, last);
    model.gather(count, last);
    model.gather(count, std::nullopt);
    model.scatter(count, last);
    model.all_to_all(count);
  });
}

void check_uneven(const CollectiveRig& rig, DataType type, std::size_t most) {
  with_type(type, [&](auto zero) {
    const Model<decltype(zero)> model{.rig = rig};
    const int last = rig.size - 1;
    model.gather_v(most, last);
    model.gather_v(most, std::nullopt);
    model.scatter_v(most, last);
    model.reduce_scatter_v(most);
    model.all_to_all_v(most);
  });
}

}  // namespace drun::test
