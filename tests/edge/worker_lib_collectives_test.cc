#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using test::check_exited;
using test::expect;
using test::over;
using test::RankEnd;
using test::Ranks;
using test::run_ranks;
using test::Say;
using test::StoreProcess;

// Small integers, different for each rank and index, and negative for some if the type has a sign.
template <typename T>
T number(int rank, std::size_t i) {
  const int value = static_cast<int>(i % 5) + rank - (std::numeric_limits<T>::is_signed ? 2 : 0);
  return static_cast<T>(value);
}

template <typename T>
T reduced(int size, std::size_t i, ReduceOp op) {
  T result = number<T>(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const T next = number<T>(rank, i);
    switch (op) {
      case ReduceOp::Sum:
        result = static_cast<T>(result + next);
        break;
      case ReduceOp::Product:
        result = static_cast<T>(result * next);
        break;
      case ReduceOp::Min:
        result = std::min(result, next);
        break;
      case ReduceOp::Max:
        result = std::max(result, next);
        break;
      default:
        throw std::runtime_error("not in this table");
    }
  }
  return result;
}

template <typename T>
void reduce_all_ways(ProcessGroup& group, std::size_t count) {
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max}) {
    std::vector<T> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = number<T>(group.rank(), i);
    group.all_reduce(data, op);
    for (std::size_t i = 0; i < count; ++i) {
      expect(data[i] == reduced<T>(group.size(), i, op),
             std::string(to_string(data_type<T>())) + " " + std::string(to_string(op)) + " at " +
                 std::to_string(i) + " of " + std::to_string(count));
    }
  }
}

template <typename T>
void broadcast_from_all(ProcessGroup& group, std::size_t count) {
  for (int root = 0; root < group.size(); ++root) {
    std::vector<T> data(count, static_cast<T>(99));
    for (std::size_t i = 0; i < count && group.rank() == root; ++i) data[i] = number<T>(root, i);
    group.broadcast(data, root);
    for (std::size_t i = 0; i < count; ++i) expect(data[i] == number<T>(root, i), "broadcast");
  }
}

template <typename Visitor>
void for_each_type(Visitor&& visit) {
  visit(std::uint8_t{});
  visit(std::int8_t{});
  visit(std::int32_t{});
  visit(std::uint32_t{});
  visit(std::int64_t{});
  visit(std::uint64_t{});
  visit(float{});
  visit(double{});
}

}  // namespace

TEST_CASE("all_reduce and broadcast are exact for every type, op, root and size") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  const int size = GENERATE(1, 2, 3, 5);
  check_exited(run_ranks({.size = size, .port = store.port()}, [&backend](int, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    for_each_type([&group](auto type) {
      using T = decltype(type);
      reduce_all_ways<T>(group, 7);
      broadcast_from_all<T>(group, 7);
    });
    for (const std::size_t count : {0u, 1u, 1000u}) {
      reduce_all_ways<float>(group, count);
      broadcast_from_all<float>(group, count);
    }
    group.barrier();
  }));
}

TEST_CASE("premul_sum multiplies each rank's elements before they are added") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    // Rank r has (r + 1) * i, times 2.
    const auto filled = [&](std::size_t count) {
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = static_cast<float>(static_cast<std::size_t>(rank + 1) * i);
      return data;
    };
    const auto sum = [](std::size_t i) { return static_cast<float>(12 * i); };
    std::vector<float> data = filled(1000);
    group.all_reduce(data, premul_sum(2), async_op).wait();
    for (std::size_t i = 0; i < data.size(); ++i) expect(data[i] == sum(i), "all_reduce");
    data = filled(50);
    group.reduce(data, 1, premul_sum(2));
    for (std::size_t i = 0; i < data.size(); ++i)
      expect(rank == 1 ? data[i] == sum(i) : data == filled(50), "reduce");
    const std::vector<float> all = filled(30);
    std::vector<float> mine(10);
    group.reduce_scatter(all, mine, premul_sum(2));
    const auto first = static_cast<std::size_t>(rank) * 10;
    for (std::size_t i = 0; i < 10; ++i) expect(mine[i] == sum(first + i), "reduce_scatter");
    const ProcessGroup::Counts counts{5, 0, 25};
    std::vector<float> part(counts[static_cast<std::size_t>(rank)]);
    group.reduce_scatter_v(all, counts, part, premul_sum(2));
    for (std::size_t i = 0; i < part.size(); ++i)
      expect(part[i] == sum(rank == 2 ? 5 + i : i), "reduce_scatter_v");
    expect(all == filled(30), "the input stays as it was");
    // The sum of 3 * 40,000 would be infinite.
    std::vector<Float16> halves(7, Float16(40000.0F));
    group.all_reduce(halves, premul_sum(0.25));
    expect(static_cast<float>(halves[6]) == 30000.0F, "halves");
    std::vector<double> own(2, 1);
    group.all_reduce(own, premul_sum(rank));
    expect(own[1] == 3, "each rank's own factor");
    std::vector<int> integers(2);
    const std::string said = error_of([&] { group.all_reduce(integers, premul_sum(2)); });
    expect(said.find("not i32") != std::string::npos, said);
    group.barrier();
  }));
}

TEST_CASE("eight megabytes are summed exactly, and all ranks get the same bits") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  const std::size_t count = GENERATE(2u << 20, (2u << 20) + 1);
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = 1.0F / static_cast<float>(i % 977 + 3 + static_cast<std::size_t>(rank));
    }
    group.all_reduce(data);
    std::vector<float> of_rank_0 = data;
    group.broadcast(of_rank_0, 0);
    expect(of_rank_0 == data, "not the same bits on all ranks");
    const float expected = 1.0F / 3 + 1.0F / 4 + 1.0F / 5;
    expect(std::abs(data[0] - expected) < 1e-6F, "sum");
    group.barrier();
  }));
}

TEST_CASE("a rank knows its rank, size, local rank and restart count") {
  const StoreProcess store;
  const std::map<std::string, std::string> environment = {{"LOCAL_RANK", "1"},
                                                          {"TORCHELASTIC_RESTART_COUNT", "3"}};
  check_exited(run_ranks({.size = 2, .port = store.port(), .environment = environment},
                         [](int rank, const Say&) {
                           const ProcessGroup group = ProcessGroup::connect();
                           expect(group.rank() == rank, "rank");
                           expect(group.size() == 2, "size");
                           expect(group.local_rank() == 1, "local_rank");
                           expect(group.restart_count() == 3, "restart_count");
                         }));
}

TEST_CASE("a barrier returns only after every rank has entered it") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  check_exited(run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    const std::chrono::seconds limit(10);
    const auto keys = connect_key_store("127.0.0.1", store.port(), limit);
    for (int turn = 0; turn < 20; ++turn) {
      const std::string prefix = std::to_string(turn) + "/";
      keys->set(prefix + std::to_string(rank), "come", limit);
      expect(keys->has(prefix + std::to_string(rank), limit), "own key");
      group.barrier();
      for (int each = 0; each < 4; ++each) {
        expect(keys->has(prefix + std::to_string(each), limit), "left too early");
      }
    }
  }));
}

TEST_CASE("messages arrive in order for each tag, and can be received in any order of tags") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&backend](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    const int next = (rank + 1) % 3;
    const int before = (rank + 2) % 3;
    std::thread sender([&] {  // every rank sends to the next while it receives from the previous
                              // one
      for (int i = 0; i < 10; ++i) {
        const std::vector<std::int64_t> number{rank * 100 + i};
        group.send(number, next);
      }
      const std::vector<double> three(3, 1.5);
      group.send(three, next, 8);
      const std::vector<std::uint8_t> none;
      group.send(none, next, 7);
    });
    const std::vector<float> many(1 << 20, 2.5F);
    std::thread other_sender([&] { group.send(many, next, 9); });
    std::vector<float> large(1 << 20);
    group.recv(large, before, 9);
    expect(large.front() == 2.5F && large.back() == 2.5F, "large message");
    for (int i = 0; i < 10; ++i) {
      std::vector<std::int64_t> one(1);
      group.recv(one, before);
      expect(one[0] == before * 100 + i, "order");
    }
    std::vector<double> three(3);
    group.recv(three, before, 8);
    expect(three == std::vector<double>(3, 1.5), "tag 8");
    std::vector<std::uint8_t> none;
    group.recv(none, before, 7);
    sender.join();
    other_sender.join();
    group.barrier();
  }));
}

TEST_CASE("a message does not wait for a pending collective") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&backend](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    std::vector<int> value{rank};
    if (rank == 0) {
      std::vector<int> sum{1};
      std::thread collective([&] { group.all_reduce(sum); });  // rank 1 joins after the message
      group.send(value, 1);
      collective.join();
      expect(sum[0] == 2, "sum");
    } else {
      group.recv(value, 0);
      group.all_reduce(std::span(&(value[0] = 1), 1));
    }
    group.barrier();
  }));
}

TEST_CASE("two groups of the same ranks work independently") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&backend](int, const Say&) {
    ProcessGroup first = ProcessGroup::connect(over(backend));
    ProcessGroup second = ProcessGroup::connect(over(backend));
    std::vector<float> data{1.0F};
    first.all_reduce(data);
    second.all_reduce(data);
    expect(data[0] == 4.0F, "sum of sums");
    second.barrier();
  }));
}

TEST_CASE("consecutive programs on one store never read each other's keys") {
  const StoreProcess store;
  for (int program = 0; program < 3; ++program) {
    check_exited(run_ranks({.size = 3, .port = store.port()}, [](int, const Say&) {
      ProcessGroup group = ProcessGroup::connect();
      group.barrier();
    }));
  }
}

}  // namespace drun
