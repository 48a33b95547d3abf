#include "worker_lib/core/requests.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/ranks.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::check_exited;
using test::expect;
using test::over;
using test::run_ranks;
using test::Say;
using test::StoreProcess;
using worker::Couriers;
using worker::Errand;

bool never() { return false; }

// Records the thread that ran the request, and the number of runs.
struct Doer {
  std::atomic<int> times = 0;
  std::atomic<std::thread::id> by = {};

  Errand::Deed deed(int result = 0) {
    return [this, result] {
      ++times;
      by = std::this_thread::get_id();
      return result;
    };
  }
  bool is_this_thread() const { return by.load() == std::this_thread::get_id(); }
};

}  // namespace

TEST_CASE("a request that can be polled is run by its waiter") {
  Doer doer;
  Errand errand(doer.deed(7), never);
  CHECK_FALSE(errand.is_done());
  CHECK(errand.is_open());
  errand.wait();
  CHECK(errand.get() == 7);
  CHECK(doer.is_this_thread());
  errand.wait();
  errand.run();
  CHECK(doer.times == 1);
}

TEST_CASE("a request without a poll function is not run by its waiter") {
  Doer doer;
  Errand errand(doer.deed(7));
  CHECK_FALSE(errand.is_done());
  CHECK_FALSE(errand.wait_for(milliseconds(1)));
  std::thread thread([&] { errand.run(); });
  errand.wait();
  thread.join();
  CHECK(errand.get() == 7);
  CHECK_FALSE(doer.is_this_thread());
}

TEST_CASE("is_done runs a request that would end at once") {
  Doer doer;
  bool would_end = false;
  Errand errand(doer.deed(), [&] { return would_end; });
  CHECK_FALSE(errand.is_done());
  would_end = true;
  CHECK(errand.is_done());
  CHECK(doer.is_this_thread());
}

TEST_CASE("a wait with a timeout does not run a request that can take longer") {
  Doer doer;
  Errand errand(doer.deed(), never);
  CHECK_FALSE(errand.wait_for(milliseconds(1)));
  CHECK(doer.times == 0);
  std::thread thread([&] { errand.run(); });
  CHECK(errand.wait_for(seconds(60)));
  thread.join();
}

TEST_CASE("a request runs once for any order of callers, and all of them get its result") {
  for (int round = 0; round < 200; ++round) {
    Doer doer;
    Errand errand(doer.deed(5), [] { return true; });
    std::atomic<int> fives = 0;
    const auto with = [&](auto come) {
      return std::thread([&, come] {
        come();
        errand.wait();
        if (errand.get() == 5) ++fives;
      });
    };
    std::vector<std::thread> threads;
    threads.push_back(with([&] { errand.run(); }));
    threads.push_back(with([&] { errand.wait(); }));
    threads.push_back(with([&] { errand.wait_for(seconds(60)); }));
    threads.push_back(with([&] { errand.is_done(); }));
    for (std::thread& thread : threads) thread.join();
    CHECK(doer.times == 1);
    CHECK(fives == 4);
  }
}

TEST_CASE("a request keeps its exception and releases what it captured") {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  Errand errand([held]() -> int { throw std::runtime_error("rank " + std::to_string(*held)); },
                [held] { return false; });
  held.reset();
  errand.wait();
  CHECK(watched.expired());
  CHECK_THROWS_WITH(errand.get(), "rank 1");
  CHECK_THROWS_WITH(errand.get(), "rank 1");
}

TEST_CASE("a request that was run immediately behaves like one that was run later") {
  const auto errand = Errand::done([] { return 7; });
  CHECK(errand->is_done());
  errand->run();
  errand->wait();
  CHECK(errand->get() == 7);
  const auto failed = Errand::done([]() -> int { throw std::runtime_error("too late"); });
  CHECK(failed->wait_for(milliseconds(1)));
  CHECK_THROWS_WITH(failed->get(), "too late");
}

TEST_CASE("a sent request is run by a caller that waits for it at once") {
  Couriers couriers;
  bool is_by_waiter = false;
  // The first attempts can fail: if this thread loses the CPU, a courier thread runs the request.
  for (int i = 0; i < 1000 && !is_by_waiter; ++i) {
    Doer doer;
    couriers.send(doer.deed())->wait();
    is_by_waiter = doer.is_this_thread();
  }
  CHECK(is_by_waiter);
}

TEST_CASE("a sent request is run by another thread if its owner only polls") {
  Couriers couriers;
  Doer doer;
  const std::shared_ptr<Errand> errand = couriers.send(doer.deed());
  while (!errand->is_done()) std::this_thread::yield();
  CHECK_FALSE(doer.is_this_thread());
  Doer other;
  CHECK(couriers.send(other.deed())->wait_for(seconds(60)));
  CHECK_FALSE(other.is_this_thread());
}

TEST_CASE("a sent request without a waiter is run by another thread, soon or late") {
  Couriers couriers;
  for (const milliseconds idle : {milliseconds(0), milliseconds(5), milliseconds(300)}) {
    std::this_thread::sleep_for(idle);
    Doer doer;
    const std::shared_ptr<Errand> errand = couriers.send(doer.deed());
    while (errand->is_open()) std::this_thread::yield();
    errand->wait();
    CHECK_FALSE(doer.is_this_thread());
  }
}

TEST_CASE("a sent request does not wait for other sent requests") {
  Couriers couriers;
  std::promise<void> word;
  const std::shared_ptr<Errand> first = couriers.send([heard = word.get_future().share()] {
    heard.wait();
    return 1;
  });
  const std::shared_ptr<Errand> second = couriers.send([&word] {
    word.set_value();
    return 2;
  });
  CHECK(first->wait_for(seconds(60)));
  CHECK(second->wait_for(seconds(60)));
}

TEST_CASE("a request under supervision is polled, and run once it would end") {
  Couriers couriers;
  for (const milliseconds when : {milliseconds(0), milliseconds(5), milliseconds(300)}) {
    Doer doer;
    std::atomic<bool> would_end = false;
    const auto errand = std::make_shared<Errand>(doer.deed(), [&] { return would_end.load(); });
    couriers.look_after(errand);
    std::this_thread::sleep_for(when);
    CHECK(errand->is_open());
    would_end = true;
    while (errand->is_open()) std::this_thread::yield();
    CHECK(errand->wait_for(seconds(60)));
    CHECK_FALSE(doer.is_this_thread());
  }
}

TEST_CASE("a request under supervision is still run by its waiter") {
  Couriers couriers;
  for (int i = 0; i < 1000; ++i) {
    Doer doer;
    const auto errand = std::make_shared<Errand>(doer.deed(), never);
    couriers.look_after(errand);
    errand->wait();
    CHECK(doer.is_this_thread());
  }
}

TEST_CASE("stopped couriers have run all sent and supervised requests") {
  Couriers couriers;
  Doer doer;
  for (int i = 0; i < 10; ++i) {
    couriers.look_after(std::make_shared<Errand>(doer.deed(), never));
    couriers.send(doer.deed());
  }
  couriers.stop();
  CHECK(doer.times == 20);
  couriers.stop();
}

TEST_CASE(
    "a long message proceeds after its Work is dropped and while the sender is busy elsewhere") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    std::vector<int> data(1 << 20, rank);  // outlives the group, which alone knows when the message
                                           // is complete
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    if (rank == 0) {
      static_cast<void>(world.isend(data, 1));
      world.monitored_barrier(seconds(60));  // over the store: it does not drive the message
    } else {
      world.recv(data, 0);
      world.monitored_barrier(seconds(60));
      expect(data.front() == 0 && data.back() == 0, "rank 0's numbers");
    }
    world.barrier();
  }));
}

TEST_CASE("a message completes for a rank that only polls, and for one that waits with a timeout") {
  const StoreProcess store;
  const std::size_t count = GENERATE(1, 1 << 18);
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    const int other = 1 - rank;
    for (int round = 0; round < 5; ++round) {
      std::vector<int> out(count, rank + round);
      std::vector<int> in(count, -1);
      const Work sent = world.isend(out, other);
      const Work received = world.irecv(in, other);
      if (round % 2 == 0) {
        while (!received.is_completed()) std::this_thread::yield();
      } else {
        received.wait(seconds(60));
      }
      expect(received.peer() == other, "whom it came from");
      expect(in.front() == other + round && in.back() == other + round, "the other's numbers");
      sent.wait();
    }
    world.barrier();
  }));
}

}  // namespace drun
