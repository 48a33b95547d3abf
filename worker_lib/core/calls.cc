#include "worker_lib/core/calls.h"

#include <limits>
#include <numeric>

#include "worker_lib/base/signature.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker {
namespace {

constexpr int kMostTags = 1 << 20;

[[noreturn]] void refuse(const Place& place, const std::string& operation,
                         const std::string& message) {
  throw WorkerError({.kind = WorkerError::Kind::Usage,
                     .rank = place.rank,
                     .operation = operation,
                     .message = message});
}

void check_memory(const Place& place, const std::string& operation, const ConstElements& data) {
  constexpr std::size_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();
  if (data.count > kMostBytes / size_bytes(data.type)) {
    refuse(place, operation, "that many elements do not fit into memory");
  }
  if (data.data == nullptr && data.count > 0) {
    refuse(place, operation, "the data is a null pointer");
  }
}

// A fast check that accepts normal arguments. The operation's text is only made for others.
bool is_beyond_doubt(const ConstElements& data) {
  return data.data != nullptr && data.count < (std::size_t{1} << 40);
}

// Checks one call. Texts are only made for errors.
class Checker {
 public:
  Checker(const Place& place, const Call& call) : place_(place), call_(call) {}

  void memory(const ConstElements& data) const {
    if (!is_beyond_doubt(data)) check_memory(place_, to_string(call_), data);
  }

  void same_kind(const ConstBuffer& input, const ConstBuffer& output) const {
    if (input.elements.type != output.elements.type) {
      refuse("the input is of type " + std::string(drun::to_string(input.elements.type)) +
             ", the output of " + std::string(drun::to_string(output.elements.type)));
    }
    if (input.value_size != output.value_size) {
      refuse("the input has values of " + std::to_string(input.value_size) +
             " bytes, the output of " + std::to_string(output.value_size));
    }
    if (input.elements.gpu != output.elements.gpu) {
      refuse("input and output lie in different memories");
    }
  }

  void root() const {
    if (call_.root >= 0 && call_.root < place_.size) return;
    refuse("root is rank " + std::to_string(call_.root) + ", but ranks are 0 to " +
           std::to_string(place_.size - 1));
  }

  void op() const {
    const bool is_real = is_floating_point(call_.type);
    const bool is_bits =
        call_.op == ReduceOp::Band || call_.op == ReduceOp::Bor || call_.op == ReduceOp::Bxor;
    if (is_bits && is_real) refuse("bits are combined of integers only");
    if (call_.op == ReduceOp::Avg && !is_real) {
      refuse("an average is made of floating-point numbers only; use sum");
    }
    const bool is_short = size_bytes(call_.type) == 1;
    if (call_.factor && (!is_real || is_short)) {
      refuse("premul_sum multiplies f16, bf16, f32 and f64 only, not " +
             std::string(drun::to_string(call_.type)));
    }
  }

  void count(const char* which, std::size_t is, std::size_t should_be) const {
    if (is == should_be) return;
    refuse(std::string(which) + " has " + std::to_string(is) + " elements and should have " +
           std::to_string(should_be));
  }

  void empty(const char* which, const ConstBuffer& data) const {
    if (data.count() == 0) return;
    refuse(std::string(which) + " is used on the root only: leave it empty here");
  }

  // The parts add up to `whole`, and this rank's part is `mine`.
  void parts(const Counts& counts, std::size_t whole, std::optional<std::size_t> mine) const {
    if (counts.size() != static_cast<std::size_t>(place_.size)) {
      refuse(std::to_string(counts.size()) + " counts for " + std::to_string(place_.size) +
             " ranks");
    }
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    std::size_t sum = 0;
    for (const std::size_t each : counts) sum = each > kMost - sum ? kMost : sum + each;
    if (sum != whole) {
      refuse("the counts add up to " + std::to_string(sum) + ", but the buffer has " +
             std::to_string(whole) + " elements");
    }
    if (mine) count("this rank's part", *mine, counts[static_cast<std::size_t>(place_.rank)]);
  }

  // `whole` holds the parts of all ranks, each of `mine` elements or as in `counts`.
  void whole_and_mine(const char* which, const ConstBuffer& whole, const ConstBuffer& mine,
                      const Counts* counts) const {
    if (counts != nullptr) return parts(*counts, whole.count(), mine.count());
    count(which, whole.count(), mine.count() * static_cast<std::size_t>(place_.size));
  }

  [[noreturn]] void refuse(const std::string& message) const {
    worker::refuse(place_, to_string(call_), message);
  }

 private:
  const Place& place_;
  const Call& call_;
};

}  // namespace

Call broadcast_call(const Place& place, const Buffer& data, int root) {
  const Call call{.operation = Operation::Broadcast,
                  .type = data.elements.type,
                  .root = root,
                  .input = data.elements.data,
                  .output = data.elements.data,
                  .count = data.elements.count,
                  .gpu = data.elements.gpu,
                  .stream = data.elements.stream};
  const Checker check(place, call);
  check.memory(data.elements);
  check.root();
  return call;
}

Call all_reduce_call(const Place& place, const Elements& data, Reduction op) {
  const Call call{.operation = Operation::AllReduce,
                  .type = data.type,
                  .op = op.op(),
                  .factor = op.factor(),
                  .input = data.data,
                  .output = data.data,
                  .count = data.count,
                  .gpu = data.gpu,
                  .stream = data.stream};
  const Checker check(place, call);
  check.memory(data);
  check.op();
  return call;
}

Call reduce_call(const Place& place, const Elements& data, int root, Reduction op) {
  const Call call{.operation = Operation::Reduce,
                  .type = data.type,
                  .op = op.op(),
                  .factor = op.factor(),
                  .root = root,
                  .input = data.data,
                  .output = place.rank == root ? data.data : nullptr,
                  .count = data.count,
                  .gpu = data.gpu,
                  .stream = data.stream};
  const Checker check(place, call);
  check.memory(data);
  check.op();
  check.root();
  return call;
}

Call gather_call(const Place& place, const ConstBuffer& mine, const Buffer& all, int root,
                 const Counts* counts) {
  const bool is_root = place.rank == root;
  Call call{.operation = Operation::Gather,
            .type = mine.elements.type,
            .root = root,
            .input = mine.elements.data,
            .output = is_root ? all.elements.data : nullptr,
            .count = mine.elements.count,
            .counts_out = is_root && counts != nullptr ? counts->data() : nullptr,
            .is_uneven = counts != nullptr,
            .gpu = mine.elements.gpu,
            .stream = mine.elements.stream};
  const Checker check(place, call);
  check.root();
  check.memory(mine.elements);
  if (!is_root) {
    check.empty("the output", all);
    return call;
  }
  check.memory(all.elements);
  check.same_kind(mine, all);
  check.whole_and_mine("the output", all, mine, counts);
  return call;
}

Call all_gather_call(const Place& place, const ConstBuffer& mine, const Buffer& all,
                     const Counts* counts) {
  const Call call{.operation = Operation::AllGather,
                  .type = mine.elements.type,
                  .input = mine.elements.data,
                  .output = all.elements.data,
                  .count = mine.elements.count,
                  .counts_out = counts != nullptr ? counts->data() : nullptr,
                  .is_uneven = counts != nullptr,
                  .gpu = mine.elements.gpu,
                  .stream = mine.elements.stream};
  const Checker check(place, call);
  check.memory(mine.elements);
  check.memory(all.elements);
  check.same_kind(mine, all);
  check.whole_and_mine("the output", all, mine, counts);
  return call;
}

Call scatter_call(const Place& place, const ConstBuffer& all, const Buffer& mine, int root,
                  const Counts* counts) {
  const bool is_root = place.rank == root;
  const Call call{.operation = Operation::Scatter,
                  .type = mine.elements.type,
                  .root = root,
                  .input = is_root ? all.elements.data : nullptr,
                  .output = mine.elements.data,
                  .count = mine.elements.count,
                  .counts_in = is_root && counts != nullptr ? counts->data() : nullptr,
                  .is_uneven = counts != nullptr,
                  .gpu = mine.elements.gpu,
                  .stream = mine.elements.stream};
  const Checker check(place, call);
  check.root();
  check.memory(mine.elements);
  if (!is_root) {
    check.empty("the input", all);
    return call;
  }
  check.memory(all.elements);
  check.same_kind(all, mine);
  check.whole_and_mine("the input", all, mine, counts);
  return call;
}

Call reduce_scatter_call(const Place& place, const ConstElements& all, const Elements& mine,
                         Reduction op, const Counts* counts) {
  const Call call{.operation = Operation::ReduceScatter,
                  .type = mine.type,
                  .op = op.op(),
                  .factor = op.factor(),
                  .input = all.data,
                  .output = mine.data,
                  .count = mine.count,
                  .counts_in = counts != nullptr ? counts->data() : nullptr,
                  .is_uneven = counts != nullptr,
                  .gpu = mine.gpu,
                  .stream = mine.stream};
  const Checker check(place, call);
  check.memory(mine);
  check.memory(all);
  check.op();
  check.same_kind(all, mine);
  check.whole_and_mine("the input", all, mine, counts);
  return call;
}

Call multiplied(Call call, int size, std::vector<std::byte>& product) {
  std::size_t count = call.count;
  if (call.operation == Operation::ReduceScatter) {
    const auto ranks = static_cast<std::size_t>(size);
    count = call.is_uneven ? std::accumulate(call.counts_in, call.counts_in + ranks, std::size_t{0})
                           : count * ranks;
  }
  void* to = call.output;
  if (call.output != call.input) {
    product.resize(count * size_bytes(call.type));
    to = product.data();
  }
  multiply(to, call.input, call.type, count, call.factor.value());
  call.input = to;
  call.factor.reset();
  return call;
}

Call all_to_all_call(const Place& place, const ConstBuffer& input, const Buffer& output) {
  const auto size = static_cast<std::size_t>(place.size);
  const std::size_t part = input.count() / size;
  const Call call{.operation = Operation::AllToAll,
                  .type = input.elements.type,
                  .input = input.elements.data,
                  .output = output.elements.data,
                  .count = part * input.value_size,
                  .gpu = input.elements.gpu,
                  .stream = input.elements.stream};
  const Checker check(place, call);
  check.memory(input.elements);
  check.memory(output.elements);
  check.same_kind(input, output);
  check.count("the output", output.count(), input.count());
  check.count("the input", input.count(), part * size);
  return call;
}

Call all_to_all_v_call(const Place& place, const ConstBuffer& input, const Counts& to,
                       const Buffer& output, const Counts& from) {
  const Call call{.operation = Operation::AllToAll,
                  .type = input.elements.type,
                  .input = input.elements.data,
                  .output = output.elements.data,
                  .counts_in = to.data(),
                  .counts_out = from.data(),
                  .is_uneven = true,
                  .gpu = input.elements.gpu,
                  .stream = input.elements.stream};
  const Checker check(place, call);
  check.memory(input.elements);
  check.memory(output.elements);
  check.same_kind(input, output);
  check.parts(to, input.count(), std::nullopt);
  check.parts(from, output.count(), std::nullopt);
  return call;
}

void check_scatter_parts(const Place& place, const ConstBuffer& whole, const Counts& counts,
                         int root) {
  const Call call{.operation = Operation::Scatter,
                  .type = whole.elements.type,
                  .root = root,
                  .is_uneven = true};
  const Checker check(place, call);
  check.root();
  if (place.rank == root) return check.parts(counts, whole.count(), std::nullopt);
  check.empty("the input", whole);
  check.empty("the list of counts", counts);
}

void check_all_to_all_parts(const Place& place, const ConstBuffer& whole, const Counts& counts) {
  const Call call{.operation = Operation::AllToAll, .type = whole.elements.type, .is_uneven = true};
  Checker(place, call).parts(counts, whole.count(), std::nullopt);
}

std::string to_string(const Message& message) {
  const ConstElements data = message.is_send ? message.outgoing : message.incoming;
  return std::string(message.is_send ? "send(" : "recv(") + std::string(to_string(data.type)) +
         " x " + std::to_string(data.count) + (message.is_send ? ", to " : ", from ") +
         (message.peer ? "rank " + std::to_string(*message.peer) : "anyone") + ")";
}

void check(const Place& place, const Message& message) {
  const auto refuse = [&](const std::string& why) {
    worker::refuse(place, to_string(message), why);
  };
  const ConstElements data = message.is_send ? message.outgoing : message.incoming;
  if (!is_beyond_doubt(data)) check_memory(place, to_string(message), data);
  if (message.peer && (*message.peer < 0 || *message.peer >= place.size)) {
    refuse("the peer is rank " + std::to_string(*message.peer) + ", but ranks are 0 to " +
           std::to_string(place.size - 1));
  }
  if (message.peer == place.rank) refuse("a rank cannot exchange with itself");
  if (place.size == 1) refuse("there is no other rank");
  if (message.tag < 0 || message.tag >= kMostTags) {
    refuse("tag " + std::to_string(message.tag) + " is not from 0 to " +
           std::to_string(kMostTags - 1));
  }
}

}  // namespace drun::worker
