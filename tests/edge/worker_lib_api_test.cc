// The forms of the operations: blocking and asynchronous, with known and unknown counts, of
// numbers, structs and single values.
#include <chrono>
#include <complex>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "drun/key_store.h"
#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::check_exited;
using test::error_of;
using test::expect;
using test::over;
using test::run_ranks;
using test::Say;
using test::StoreProcess;

// With padding after `from`.
struct Item {
  double value = 0;
  int from = -1;

  bool operator==(const Item&) const = default;
};

// What rank `from` has for rank `to`, for T = int, Item.
template <typename T>
T value(int from, int to, std::size_t i);
template <>
int value(int from, int to, std::size_t i) {
  return 10000 * from + 1000 * to + static_cast<int>(i);
}
template <>
Item value(int from, int to, std::size_t i) {
  return {.value = 1000.0 * to + static_cast<double>(i), .from = from};
}

// 0 to 3 for some pairs, 500 for others.
std::size_t share(int from, int to) {
  const int number = (3 * from + 5 * to + 1) % 5;
  return number == 4 ? 500 : static_cast<std::size_t>(number);
}

template <typename T>
void append(std::vector<T>& all, int from, int to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) all.push_back(value<T>(from, to, i));
}

// The parts of every operation whose parts have different sizes, as seen by one rank.
template <typename T>
struct Parts {
  Parts(int rank, int size) {
    for (int i = 0; i < size; ++i) {
      counts.push_back(share(i, 0));
      append(all, i, 0, counts.back());
      to.push_back(share(rank, i));
      append(sent, rank, i, to.back());
      from.push_back(share(i, rank));
      append(received, i, rank, from.back());
    }
    append(mine, rank, 0, share(rank, 0));
  }
  std::vector<T> mine, all, sent, received;
  ProcessGroup::Counts counts, to, from;
};

template <typename T>
void check_deduced(ProcessGroup& group) {
  const Parts<T> is(group.rank(), group.size());
  const int root = group.size() - 1;
  const bool is_root = group.rank() == root;
  const std::vector<T> none;
  ProcessGroup::Counts counts{99};
  expect(group.all_gather_v(is.mine, &counts) == is.all && counts == is.counts, "all_gather_v");
  expect(group.all_gather_v(std::vector<T>(is.mine)) == is.all, "all_gather_v of a temporary");
  expect(group.gather_v(is.mine, root, &counts) == (is_root ? is.all : none), "gather_v");
  expect(counts == (is_root ? is.counts : ProcessGroup::Counts{}), "the counts, on the root only");
  expect(group.scatter_v(is_root ? is.all : none, is_root ? is.counts : ProcessGroup::Counts{},
                         root) == is.mine,
         "scatter_v");
  expect(group.all_to_all_v(is.sent, is.to, &counts) == is.received && counts == is.from,
         "all_to_all_v");
  expect(group.all_gather_v(none, &counts).empty(), "only empty parts");
  expect(counts == ProcessGroup::Counts(static_cast<std::size_t>(group.size())), "their counts");
}

template <typename T>
void check_explicit(ProcessGroup& group, const OpOptions& options) {
  const Parts<T> is(group.rank(), group.size());
  const int root = group.size() - 1;
  const bool is_root = group.rank() == root;
  std::vector<T> all(is.all.size());
  std::vector<T> gathered(is_root ? is.all.size() : 0);
  std::vector<T> mine(is.mine.size());
  std::vector<T> received(is.received.size());
  Parts<T> passed = is;
  const std::vector<T> scattered = is_root ? is.all : std::vector<T>();
  const std::vector<Work> works{
      group.all_gather_v(is.mine, all, passed.counts, options),
      group.gather_v(is.mine, gathered, passed.counts, root, options),
      group.scatter_v(scattered, passed.counts, mine, root, options),
      group.all_to_all_v(is.sent, passed.to, received, passed.from, options)};
  for (ProcessGroup::Counts* counts : {&passed.counts, &passed.to, &passed.from}) {
    counts->assign(counts->size(), 1'000'000'000);
    *counts = {};
  }
  // Nothing is done before all ranks are here, unless the calls block.
  group.monitored_barrier();
  wait_all(works);
  expect(all == is.all, "all_gather_v");
  expect(gathered == (is_root ? is.all : std::vector<T>()), "gather_v");
  expect(mine == is.mine, "scatter_v");
  expect(received == is.received, "all_to_all_v");
}

template <typename T>
void check_even(ProcessGroup& group, const OpOptions& options) {
  const int rank = group.rank();
  const int size = group.size();
  std::vector<T> mine, all, received, of_root, part(3);
  append(mine, rank, 0, 3);
  append(of_root, 1, 0, 3);
  std::vector<T> sent;
  std::vector<T> expected_all, expected_received;
  for (int i = 0; i < size; ++i) {
    append(expected_all, i, 0, 3);
    append(sent, rank, i, 3);
    append(expected_received, i, rank, 3);
  }
  all.resize(expected_all.size());
  received.resize(expected_all.size());
  std::vector<T> data = mine;
  group.broadcast(data, 1, options).wait();
  expect(data == of_root, "broadcast");
  group.all_gather(mine, all, options).wait();
  expect(all == expected_all, "all_gather");
  group.all_to_all(sent, received, options).wait();
  expect(received == expected_received, "all_to_all");
  all.assign(rank == 0 ? all.size() : 0, T());
  group.gather(mine, all, 0, options).wait();
  expect(all == (rank == 0 ? expected_all : std::vector<T>()), "gather");
  group.scatter(all, part, 0, options).wait();
  expect(part == mine, "scatter");
}

}  // namespace

TEST_CASE("parts whose sizes are unknown are gathered, scattered and exchanged") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp");
  const int size = GENERATE(2, 3, 4);
  check_exited(run_ranks({.size = size, .port = store.port()}, [&](int, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    check_deduced<int>(group);
    check_deduced<Item>(group);
    group.barrier();
  }));
}

TEST_CASE("structs are moved like numbers, and counts are numbers of structs") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "shm+tcp", "gloo");
  const int size = GENERATE(2, 4);
  check_exited(run_ranks({.size = size, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    for (const OpOptions& options : {OpOptions{}, async_op}) {
      check_even<int>(group, options);
      check_even<Item>(group, options);
      check_explicit<Item>(group, options);
    }
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    const std::vector<Item> sent{value<Item>(rank, next, 1), value<Item>(rank, next, 2)};
    std::vector<Item> got(2);
    wait_all(batch_isend_irecv(group, {P2POp::send(sent, next), P2POp::recv(got, previous)}));
    expect(got == std::vector<Item>{value<Item>(previous, rank, 1), value<Item>(previous, rank, 2)},
           "messages");
    group.barrier();
  }));
}

TEST_CASE("asynchronous operations do not need their counts after the call") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp");
  const int size = GENERATE(2, 3, 4);
  check_exited(run_ranks({.size = size, .port = store.port()}, [&](int, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    for (int i = 0; i < 5; ++i) {
      check_explicit<int>(group, async_op);
      check_explicit<Item>(group, async_op);
      // Of a reduction; the other ranks are late.
      if (group.rank() > 0) group.monitored_barrier();
      std::vector<float> all(static_cast<std::size_t>(size + 1), 1.0F);
      std::vector<float> mine(group.rank() == 0 ? 2 : 1);
      ProcessGroup::Counts counts(static_cast<std::size_t>(size), 1);
      counts[0] = 2;
      const Work work = group.reduce_scatter_v(all, counts, mine, async_op);
      counts.assign(counts.size(), 1'000'000'000);
      counts = {};
      if (group.rank() == 0) group.monitored_barrier();
      work.wait();
      expect(mine == std::vector<float>(mine.size(), static_cast<float>(size)), "a sum");
    }
    group.barrier();
  }));
}

TEST_CASE("wrong counts and sizes are refused before anything is sent") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over("shm"));
    const auto is_refused = [&](const std::function<void()>& call, const std::string& why) {
      const std::string error = error_of(call);
      expect(error.starts_with("usage: ") && error.find(why) != std::string::npos, error);
    };
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    const std::vector<int> mine(2);
    std::vector<int> all(5);
    for (const OpOptions& options : {OpOptions{}, async_op}) {
      const auto gather = [&](const ProcessGroup::Counts& counts) {
        return [&, counts] { group.all_gather_v(mine, all, counts, options); };
      };
      is_refused(gather({2, 3, 0}), "3 counts for 2 ranks");
      is_refused(gather({}), "0 counts for 2 ranks");
      is_refused(gather({2, 2}), "the counts add up to 4, but the buffer has 5 elements");
      is_refused(gather({kMost, 6}), "the counts add up to " + std::to_string(kMost));
      is_refused(gather(rank == 0 ? ProcessGroup::Counts{3, 2} : ProcessGroup::Counts{2, 3}),
                 "this rank's part has 2 elements and should have 3");
      std::vector<Item> items(5);
      const std::vector<Item> own(2);
      is_refused(
          [&] {
            group.all_gather_v(own, items, {3, 3}, options);
          },
          "all_gather_v(u8): the counts add up to 6, but the buffer has 5 elements");
      is_refused(
          [&] {
            group.all_gather_v(own, items, {kMost / sizeof(Item) + 2, 4}, options);
          },
          "the buffer has 5 elements");
      is_refused([&] { group.all_gather(own, items, options); },
                 "the output has 5 elements and should have 4");
      // A rank copies its own part: no other rank can contradict.
      std::vector<int> received(5);
      const ProcessGroup::Counts to{2, 3};
      is_refused(
          [&] {
            group.all_to_all_v(all, to, received, {3, 2}, options);
          },
          "this rank's part of the input has " + std::to_string(2 + rank) +
              " elements and should have " + std::to_string(3 - rank));
      is_refused([&] { group.all_to_all(items, items, options); },
                 "the input has 5 elements and should have 4");
      std::vector<std::complex<float>> others(4);
      is_refused([&] { group.all_gather(own, others, options); },
                 "the input has values of 16 bytes, the output of 8");
      is_refused([&] { group.all_gather(mine, others, options); }, "the input is of type i32");
    }
    is_refused(
        [&] {
          return group.all_to_all_v(all, {2, 2});
        },
        "add up to 4, but the buffer has 5");
    is_refused([&] { return group.gather_v(mine, 2); }, "root is rank 2");
    if (rank == 0) {
      is_refused(
          [&] {
            return group.scatter_v(all, {1, 3}, 0);
          },
          "add up to 4, but the buffer has 5");
      is_refused([&] { return group.scatter_v(all, {5}, 0); }, "1 counts for 2 ranks");
    } else {
      is_refused([&] { return group.scatter_v(all, {}, 0); }, "leave it empty here");
      is_refused(
          [&] {
            return group.scatter_v(std::vector<int>(), {1, 4}, 0);
          },
          "leave it empty here");
    }
    is_refused([&] { return group.all_gather_v(mine, {milliseconds(0)}); }, "leaves no time");
    group.barrier();
  }));
}

TEST_CASE("an operation with unknown counts keeps its timeout, which is one for all of it") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp");
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    const std::vector<int> mine(3);
    if (rank == 1) {
      // Only the first part of the other rank's operation.
      const std::size_t count = 3;
      ProcessGroup::Counts counts(2);
      group.all_gather(count, counts);
      return group.monitored_barrier({seconds(40)});
    }
    const auto began = std::chrono::steady_clock::now();
    say(error_of([&] { return group.all_gather_v(mine, {milliseconds(300)}); }));
    const auto took = std::chrono::steady_clock::now() - began;
    expect(took >= milliseconds(290) && took < test::scaled(seconds(10)), "the time");
    group.monitored_barrier({seconds(40)});
  });
  CHECK_THAT(ends[0].said, ContainsSubstring("timeout: rank 0: all_gather_v(i32)"));
}

TEST_CASE("a blocking call returns a completed Work, and a received one names its sender") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp");
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    int sum = rank;
    const Work reduced = group.all_reduce(sum, {.timeout = seconds(40)});
    expect(reduced.is_completed() && !reduced.error() && sum == 3, "all_reduce");
    bool is_last = rank == 2;
    group.broadcast(is_last, 2, {seconds(40)});
    expect(is_last, "broadcast of a bool");
    int least = -rank;
    group.reduce(least, 1, ReduceOp::Min, {seconds(40), true}).wait();
    expect(least == (rank == 1 ? -2 : -rank), "reduce of one number");
    const std::complex<float> mine(static_cast<float>(rank), 1);
    std::complex<float> theirs;
    if (rank == 0) {
      const Work first = group.recv(theirs, any_rank, 4, {seconds(40)});
      expect(first.is_completed() && theirs.real() == static_cast<float>(first.peer()), "sender");
      const Work second = group.recv(theirs, any_rank, 4, async_op);
      expect(wait_any({second}) == 0 && wait_any({Work(), second}) == 0, "wait_any");
      expect(second.peer() == 3 - first.peer(), "the other sender");
      wait_all({first, second});
    } else {
      const Work sent = group.send(mine, 0, 4);
      expect(sent.is_completed() && sent.peer() == 0, "the receiver");
    }
    group.barrier(async_op).wait();
  }));
}

}  // namespace drun
