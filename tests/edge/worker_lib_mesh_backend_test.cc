#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/catch.h"
#include "tests/support/collective_model.h"
#include "tests/support/machine.h"
#include "tests/support/mesh_ranks.h"

namespace drun::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

void expect_none(const std::string& wrong) {
  if (!wrong.empty()) throw std::runtime_error(wrong);
}

// Null: it is done already.
int message(const std::unique_ptr<Transfer>& transfer) {
  return transfer ? transfer->finish(in(seconds(20))) : -1;
}

}  // namespace

TEST_CASE("every collective is exact over each transport, small and large") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const bool is_debug = GENERATE(false, true);
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect(transport, context_of(rank, 3, is_debug));
    std::mt19937 random(5);
    std::uint32_t sequence = 0;
    for (const Operation operation : all_operations()) {
      for (const std::size_t count : {0u, 1u, 1023u, 300'007u}) {
        for (const bool is_uneven : {false, true}) {
          if (is_uneven && (count == 0 || !has_parts(operation))) continue;
          Scenario scenario;
          scenario.operation = operation;
          scenario.size = 3;
          scenario.root = static_cast<int>(count % 3);
          scenario.count = count;
          scenario.is_uneven = is_uneven;
          if (is_uneven) scenario.counts = random_counts(random, 3, count);
          expect_none(run_and_check(scenario, rank, [&](const Call& call) {
            backend->run(call, {++sequence, in(seconds(20))});
          }));
        }
      }
    }
  }));
}

TEST_CASE("random programs of collectives over each transport match a sequential model") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const unsigned seed = GENERATE(1u, 2u);
  const int size = seed == 1 ? 2 : 4;
  check_exited(run_ranks({.size = size, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect(transport, context_of(rank, size));
    std::mt19937 random(seed);
    for (std::uint32_t sequence = 1; sequence <= 120; ++sequence) {
      const std::size_t most = random() % 8 == 0 ? 100'000 : 1000;
      expect_none(run_and_check(random_scenario(random, size, most), rank, [&](const Call& call) {
        backend->run(call, {sequence, in(seconds(20))});
      }));
    }
  }));
}

TEST_CASE(
    "messages of one pair and tag arrive in order, of any length and completed in any order") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect(transport, context_of(rank, 2));
    std::vector<std::vector<std::int32_t>> data;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (int i = 0; i < 24; ++i) {
      const std::size_t count = i % 4 == 0 ? 100'000 : i % 4 == 1 ? 512 : i % 4 == 2 ? 513 : 0;
      data.emplace_back(count, rank == 0 ? i : -1);
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      const int tag = i < 12 ? 3 : 4;
      transfers.push_back(rank == 0 ? backend->start_send(data[i], 1, tag)
                                    : backend->start_recv(data[i], 0, tag));
    }
    // Each rank starts at another end, on several threads.
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = thread; i < transfers.size(); i += 3) {
          message(transfers[rank == 0 ? i : transfers.size() - 1 - i]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < data.size(); ++i) {
      for (const std::int32_t number : data[i]) {
        if (number != static_cast<int>(i)) throw std::runtime_error("wrong message");
      }
    }
  }));
}

TEST_CASE(
    "a message received from any rank names its sender, also among receives from a given rank") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  check_exited(run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect(transport, context_of(rank, 4));
    constexpr int kEach = 10;
    if (rank != 0) {
      for (int i = 0; i < kEach; ++i) {
        std::vector<int> mine(i % 2 == 0 ? 1 : 5000, rank * 100 + i);
        message(backend->start_send(mine, 0, i % 2));
      }
      return;
    }
    std::vector<int> next(4, 0);
    for (int i = 0; i < kEach; ++i) {
      // The first message of a round is received from any rank. The others are received from the
      // rank with the fewest messages so far.
      for (int turn = 0; turn < 3; ++turn) {
        std::vector<int> got(i % 2 == 0 ? 1 : 5000);
        std::unique_ptr<Transfer> transfer;
        if (turn == 0) transfer = backend->start_recv(got, std::nullopt, i % 2);
        if (turn > 0) {
          const auto behind = std::min_element(next.begin() + 1, next.end());
          transfer = backend->start_recv(got, static_cast<int>(behind - next.begin()), i % 2);
        }
        const int who = message(transfer);
        const int number = next[static_cast<std::size_t>(who)]++;
        if (got.front() != who * 100 + number || got.back() != got.front()) {
          throw std::runtime_error("wrong message");
        }
      }
    }
  }));
}

TEST_CASE("short messages arrive although their sender has ended before they are received") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    const BackendContext context = context_of(rank, 2);
    auto backend = connect(transport, context);
    std::vector<int> data(100, rank == 1 ? 7 : 0);
    // Connects rank 1 to rank 0, which connects to rank 1 only after its end.
    message(rank == 1 ? backend->start_send(data, 0, 9)
                      : backend->start_recv(data, std::nullopt, 9));
    if (rank == 1) {
      for (int tag = 0; tag < 3; ++tag) message(backend->start_send(data, 0, tag));
      backend.reset();
      context.store->set("ended", "", seconds(20));
      return;
    }
    context.store->get("ended", seconds(30));
    for (int tag = 0; tag < 3; ++tag) {
      data.assign(data.size(), 0);
      message(backend->start_recv(data, 1, tag));
      if (data.front() != 7 || data.back() != 7) throw std::runtime_error("wrong message");
    }
  }));
}

TEST_CASE("more short messages than are buffered arrive in order when received from any rank") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    const auto backend = connect(transport, context_of(rank, 2));
    std::vector<std::unique_ptr<Transfer>> transfers;
    std::vector<std::vector<int>> data;
    for (int i = 0; i < 2000; ++i) data.emplace_back(i % 7 == 0 ? 0 : 500, rank == 0 ? i : -1);
    for (int i = 0; i < 2000; ++i) {
      auto& numbers = data[static_cast<std::size_t>(i)];
      transfers.push_back(rank == 0 ? backend->start_send(numbers, 1, 0)
                                    : backend->start_recv(numbers, std::nullopt, 0));
      if (rank == 1) message(transfers.back());
    }
    for (int i = 0; i < 2000; ++i) {
      if (rank == 0) message(transfers[static_cast<std::size_t>(i)]);
      for (const int number : data[static_cast<std::size_t>(i)])
        if (number != i) throw std::runtime_error("wrong message");
    }
  }));
}

TEST_CASE("a message of another size or type is an error on the receiver that names both") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const bool is_size = GENERATE(true, false);
  const std::size_t count = GENERATE(10u, 10'000u);
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    const auto backend = connect(transport, context_of(rank, 2));
    std::vector<float> floats(is_size && rank == 1 ? count - 1 : count);
    std::vector<std::int32_t> integers(count);
    say(failure_of([&] {
      if (rank == 0) message(backend->start_send(floats, 1, 0));
      if (rank == 1) {
        message(is_size ? backend->start_recv(floats, 0, 0) : backend->start_recv(integers, 0, 0));
      }
    }));
    backend->abort();
  });
  check_exited(ends);
  const std::string sends = "mismatch peer=0: rank 0 sends f32 x " + std::to_string(count);
  const std::string expects =
      is_size ? "f32 x " + std::to_string(count - 1) : "i32 x " + std::to_string(count);
  CHECK_THAT(ends[1].said, ContainsSubstring(sends + ", this rank receives " + expects));
}

TEST_CASE("different calls never match: they end at their deadline, and no process dies") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const int difference = GENERATE(range(0, 4));
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    const auto backend = connect(transport, context_of(rank, 2));
    std::vector<float> in_data(4096);
    std::vector<float> out(8192);
    const std::size_t odd = rank == 0 ? 0 : 1;
    Call call = all_reduce_of(in_data);
    const std::vector<std::size_t> counts{100 + odd, 100 + odd};
    if (difference == 0) call.count -= odd;
    if (difference == 1) call.type = rank == 0 ? DataType::F32 : DataType::I16;
    if (difference == 2 && rank == 0) {
      call.operation = Operation::Broadcast;
      call.root = 1;
    }
    if (difference == 3) {
      call.operation = Operation::AllToAll;  // equal signatures, but incompatible counts
      call.output = out.data();
      call.is_uneven = true;
      call.counts_in = counts.data();
      call.counts_out = counts.data();
    }
    say(failure_of([&] { backend->run(call, {1, in(milliseconds(100))}); }));
  });
  check_exited(ends);
  // One rank times out first; the other sees its end.
  CHECK_THAT(ends[0].said + ends[1].said, ContainsSubstring("timeout peer="));
  CHECK_THAT(ends[0].said + ends[1].said, ContainsSubstring("DRUN_DEBUG=1"));
}

TEST_CASE("with DRUN_DEBUG every rank reports different calls at once") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const int other = GENERATE(0, 2);
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    const auto backend = connect(transport, context_of(rank, 3, true));
    std::vector<float> data(1 << 18);
    backend->run({.operation = Operation::Barrier}, {1, in(seconds(20))});
    Call call = all_reduce_of(data);
    if (rank == other) call = {.operation = Operation::Barrier};
    say(failure_of([&] { backend->run(call, {2, in(seconds(20))}); }));
  });
  check_exited(ends);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said,
               ContainsSubstring("mismatch: the ranks disagree about collective number 2"));
    CHECK_THAT(end.said, ContainsSubstring("rank " + std::to_string(other) + " calls barrier()"));
    CHECK_THAT(end.said, ContainsSubstring("call all_reduce(f32 x 262144, sum)"));
  }
}

TEST_CASE("abort wakes every kind of waiter within milliseconds, and peers see it") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  Ranks ranks{.size = 2, .port = store.port()};
  // Newer versions of UCX choose by network when a send waits for its receiver.
  if (transport == "ucx") ranks.environment = {{"UCX_RNDV_THRESH", "64k"}};
  const auto ends = run_ranks(ranks, [&](int rank, const Say& say) {
    const auto backend = connect(transport, context_of(rank, 2));
    std::vector<float> mine(16 << 20);  // takes far longer than the time until the abort
    std::vector<float> never(2 << 20);
    const Call call = all_reduce_of(mine);
    backend->run(call, {1, in(seconds(20))});
    if (rank == 1) {
      // The other rank stops halfway through a large collective.
      say(failure_of([&] { backend->run(call, {2, in(seconds(50))}); }));
      return;
    }
    const auto unfinished = backend->start_recv(never, 1, 9);
    std::vector<std::string> heard(4);
    std::vector<std::thread> threads;
    std::atomic<int> waiting = 0;
    const auto start = [&](std::size_t at, auto action) {
      threads.emplace_back([&, at, action] {
        ++waiting;
        heard[at] = failure_of(action);
      });
    };
    start(0, [&] { backend->run(call, {2, in(seconds(50))}); });
    start(1, [&] { backend->start_recv(never, 1, 1)->finish(in(seconds(50))); });
    start(2, [&] { backend->start_recv(never, std::nullopt, 2)->finish(in(seconds(50))); });
    start(3, [&] { backend->start_send(never, 1, 3)->finish(in(seconds(50))); });
    while (waiting != 4) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(5));  // most threads wait by then; any moment works
    const auto began = Clock::now();
    backend->abort();
    for (std::thread& thread : threads) thread.join();
    const auto took = Clock::now() - began;
    if (took > test::scaled(seconds(5))) throw std::runtime_error("abort woke them late");
    for (const std::string& each : heard) say(each);
    backend->abort();  // no effect
    say(failure_of([&] { backend->run(call, {3, in(seconds(50))}); }));
  });
  check_exited(ends);
  CHECK(ends[0].said.find("no failure") == std::string::npos);
  CHECK_THAT(ends[0].said, ContainsSubstring("broken: another operation of this rank has failed"));
  CHECK_THAT(ends[1].said, ContainsSubstring("peer lost peer=0"));
  CHECK(ends[1].took < test::scaled(seconds(25)));
}

TEST_CASE("a rank that is killed during any operation is named by the ranks that wait for it") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const int work = GENERATE(range(0, 4));
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    const auto backend = connect(transport, context_of(rank, 3));
    // A short send completes as soon as the transport has buffered it.
    std::vector<float> data(work % 2 == 1 ? 2 << 20 : 100);
    std::uint32_t sequence = 0;
    backend->run(all_reduce_of(data), {++sequence, in(seconds(20))});
    const auto began = Clock::now();
    if (rank == 1) {
      std::thread killer([] {
        std::this_thread::sleep_for(milliseconds(30));
        raise(SIGKILL);
      });
      if (work == 1) {
        while (true) backend->run(all_reduce_of(data), {++sequence, in(seconds(20))});
      }
      killer.join();
    }
    say(failure_of([&] {
      if (work == 2) message(backend->start_recv(data, 1, 0));
      if (work == 3) message(backend->start_send(data, 1, 0));
      while (work < 2) backend->run(all_reduce_of(data), {++sequence, in(seconds(20))});
    }));
    backend->abort();
    if (Clock::now() - began > test::scaled(seconds(10))) throw std::runtime_error("heard late");
  });
  for (const int rank : {0, 2}) {
    INFO(ends[static_cast<std::size_t>(rank)].said);
    CHECK(ends[static_cast<std::size_t>(rank)].exit_code == 0);
    CHECK_THAT(ends[static_cast<std::size_t>(rank)].said, ContainsSubstring("peer lost peer="));
  }
  CHECK_THAT(ends[0].said + ends[2].said, ContainsSubstring("peer lost peer=1"));
}

TEST_CASE(
    "tell_lost makes receives return that rank's last messages, then fail before their deadline") {
  const StoreProcess store;
  const std::string transport = GENERATE(from_range(transports()));
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    const auto backend = connect(transport, context_of(rank, 3));
    std::vector<int> data(1, rank);
    backend->run({.operation = Operation::Barrier}, {1, in(seconds(20))});
    // Rank 1 notifies rank 0 once rank 2 has sent its messages.
    if (rank == 2) {
      message(backend->start_send(data, 0, 1));
      message(backend->start_send(data, 1, 3));
      return;
    }
    if (rank == 1) {  // stays, without further messages, until rank 0 is done
      message(backend->start_recv(data, 2, 3));
      message(backend->start_send(data, 0, 3));
      say(failure_of([&] { backend->start_recv(data, 0, 7)->finish(in(seconds(20))); }));
      return;
    }
    const auto spoken = backend->start_recv(data, 2, 1);
    const auto silent = backend->start_recv(data, 1, 1);
    const auto any = backend->start_recv(data, std::nullopt, 2);
    std::vector<int> word(1);
    message(backend->start_recv(word, 1, 3));
    std::thread teller([&] { backend->tell_lost(2); });
    say(failure_of([&] { spoken->finish(in(seconds(20))); }));
    teller.join();
    backend->tell_lost(1);
    const auto began = Clock::now();
    say(failure_of([&] { silent->finish(in(seconds(20))); }));
    say(failure_of([&] { any->finish(in(seconds(20))); }));
    if (Clock::now() - began > test::scaled(seconds(10))) throw std::runtime_error("heard late");
  });
  check_exited(ends);
  CHECK(ends[0].said.rfind("no failure\npeer lost peer=1: rank 1 ended before it had done its part",
                           0) == 0);
  CHECK_THAT(ends[1].said, ContainsSubstring("peer lost peer=0"));
}

}  // namespace drun::test
