#include "worker_lib/core/requests.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
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
using worker::GroupRequests;
using worker::Progress;
using worker::Request;

bool never() { return false; }

using Action = std::function<int()>;

class TestRequest final : public Request {
 public:
  using Question = std::function<std::optional<bool>()>;

  explicit TestRequest(Action action, Question would_end = never,
                       std::weak_ptr<Transfer> transfer = {})
      : Request(std::move(transfer)),
        action_(std::move(action)),
        would_end_(std::move(would_end)) {}

 private:
  int act() override {
    would_end_ = nullptr;
    return std::exchange(action_, nullptr)();
  }
  std::optional<bool> would_end() override { return would_end_(); }

  Action action_;
  Question would_end_;
};

// Starts a message that makes progress only while it runs.
std::shared_ptr<Request> send(GroupRequests& requests, Action action) {
  const auto request =
      std::make_shared<TestRequest>(std::move(action), [] { return std::nullopt; });
  requests.look_after(request);
  return request;
}

// Records the thread that ran the request, and the number of runs.
struct Doer {
  std::atomic<int> times = 0;
  std::atomic<std::thread::id> by = {};

  Action action(int result = 0) {
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
  TestRequest request(doer.action(7), never);
  CHECK_FALSE(request.is_done());
  CHECK(request.is_open());
  request.wait();
  CHECK(request.get() == 7);
  CHECK(doer.is_this_thread());
  request.wait();
  request.run();
  CHECK(doer.times == 1);
}

TEST_CASE("is_done runs a request that would end at once") {
  Doer doer;
  bool would_end = false;
  TestRequest request(doer.action(), [&] { return would_end; });
  CHECK_FALSE(request.is_done());
  would_end = true;
  CHECK(request.is_done());
  CHECK(doer.is_this_thread());
}

TEST_CASE("a wait with a timeout does not run a request that can take longer") {
  Doer doer;
  TestRequest request(doer.action(), never);
  CHECK_FALSE(request.wait_for(milliseconds(1)));
  CHECK(doer.times == 0);
  std::thread thread([&] { request.run(); });
  CHECK(request.wait_for(seconds(60)));
  thread.join();
}

TEST_CASE("a request runs once for any order of callers, and all of them get its result") {
  for (int round = 0; round < 200; ++round) {
    Doer doer;
    TestRequest request(doer.action(5), [] { return true; });
    std::atomic<int> fives = 0;
    const auto with = [&](auto come) {
      return std::thread([&, come] {
        come();
        request.wait();
        if (request.get() == 5) ++fives;
      });
    };
    std::vector<std::thread> threads;
    threads.push_back(with([&] { request.run(); }));
    threads.push_back(with([&] { request.wait(); }));
    threads.push_back(with([&] { request.wait_for(seconds(60)); }));
    threads.push_back(with([&] { request.is_done(); }));
    for (std::thread& thread : threads) thread.join();
    CHECK(doer.times == 1);
    CHECK(fives == 4);
  }
}

TEST_CASE("a request keeps its exception and releases what it captured") {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  TestRequest request(
      [held]() -> int { throw std::runtime_error("rank " + std::to_string(*held)); },
      [held] { return false; });
  held.reset();
  request.wait();
  CHECK(watched.expired());
  CHECK_THROWS_WITH(request.get(), "rank 1");
  CHECK_THROWS_WITH(request.get(), "rank 1");
}

TEST_CASE("a sent request is run by a caller that waits for it at once") {
  Progress progress;
  GroupRequests requests(progress);
  bool is_by_waiter = false;
  // The first attempts can fail: if this thread loses the CPU, another thread runs the request.
  for (int i = 0; i < 1000 && !is_by_waiter; ++i) {
    Doer doer;
    send(requests, doer.action())->wait();
    is_by_waiter = doer.is_this_thread();
  }
  CHECK(is_by_waiter);
}

TEST_CASE("a sent request is run by another thread if its owner only polls") {
  Progress progress;
  GroupRequests requests(progress);
  Doer doer;
  const std::shared_ptr<Request> request = send(requests, doer.action());
  while (!request->is_done()) std::this_thread::yield();
  CHECK_FALSE(doer.is_this_thread());
  Doer other;
  CHECK(send(requests, other.action())->wait_for(seconds(60)));
  CHECK_FALSE(other.is_this_thread());
}

TEST_CASE("a sent request without a waiter is run by another thread, soon or late") {
  Progress progress;
  GroupRequests requests(progress);
  for (const milliseconds idle : {milliseconds(0), milliseconds(5), milliseconds(300)}) {
    std::this_thread::sleep_for(idle);
    Doer doer;
    const std::shared_ptr<Request> request = send(requests, doer.action());
    while (request->is_open()) std::this_thread::yield();
    request->wait();
    CHECK_FALSE(doer.is_this_thread());
  }
}

TEST_CASE("a sent request does not wait for other sent requests") {
  Progress progress;
  GroupRequests requests(progress);
  std::promise<void> word;
  const std::shared_ptr<Request> first = send(requests, [heard = word.get_future().share()] {
    heard.wait();
    return 1;
  });
  const std::shared_ptr<Request> second = send(requests, [&word] {
    word.set_value();
    return 2;
  });
  CHECK(first->wait_for(seconds(60)));
  CHECK(second->wait_for(seconds(60)));
}

TEST_CASE("a request under supervision is polled, and run once it would end") {
  Progress progress;
  GroupRequests requests(progress);
  for (const milliseconds when : {milliseconds(0), milliseconds(5), milliseconds(300)}) {
    Doer doer;
    std::atomic<bool> would_end = false;
    const auto request =
        std::make_shared<TestRequest>(doer.action(), [&] { return would_end.load(); });
    requests.look_after(request);
    std::this_thread::sleep_for(when);
    CHECK(request->is_open());
    would_end = true;
    while (request->is_open()) std::this_thread::yield();
    CHECK(request->wait_for(seconds(60)));
    CHECK_FALSE(doer.is_this_thread());
  }
}

TEST_CASE("a request under supervision is still run by its waiter") {
  Progress progress;
  GroupRequests requests(progress);
  for (int i = 0; i < 1000; ++i) {
    Doer doer;
    const auto request = std::make_shared<TestRequest>(doer.action(), never);
    requests.look_after(request);
    request->wait();
    CHECK(doer.is_this_thread());
  }
}

TEST_CASE("a stopped group has run all its requests, and those of another group continue") {
  Progress progress;
  Doer other;
  Doer doer;
  GroupRequests others(progress);
  const auto kept = std::make_shared<TestRequest>(other.action(), never);
  others.look_after(kept);
  GroupRequests requests(progress);
  for (int i = 0; i < 10; ++i) {
    requests.look_after(std::make_shared<TestRequest>(doer.action(), never));
    send(requests, doer.action());
    requests.queue(doer.action());
  }
  requests.stop();
  CHECK(doer.times == 30);
  requests.stop();
  CHECK(kept->is_open());
}

TEST_CASE("an operation's group does not end while a thread makes a stream wait for it") {
  class OnGpu final : public Transfer {
   public:
    int finish(Deadline) override { return 0; }
    bool wait_on(void*) override {
      entered.set_value();
      leaves.wait();
      return true;
    }
    std::promise<void> entered;
    std::promise<void> leave;
    std::shared_future<void> leaves = leave.get_future().share();
  };
  Progress progress;
  GroupRequests requests(progress);
  const auto transfer = std::make_shared<OnGpu>();
  const auto request = std::make_shared<TestRequest>([] { return 0; }, never, transfer);
  requests.look_after(request);
  std::thread streaming([&] { Work(request).wait_stream(nullptr); });
  transfer->entered.get_future().wait();
  std::atomic<bool> has_stopped = false;
  std::thread stopping([&] {
    requests.stop();
    has_stopped = true;
  });
  while (request->is_open()) std::this_thread::yield();
  CHECK_FALSE(request->wait_for(milliseconds(20)));
  CHECK_FALSE(has_stopped);
  transfer->leave.set_value();
  streaming.join();
  stopping.join();
  CHECK(request->is_done());
}

TEST_CASE("queued requests run in order, with any waiter and without one") {
  Progress progress;
  GroupRequests requests(progress);
  requests.start();
  for (int round = 0; round < 300; ++round) {
    std::mutex mutex;
    std::vector<int> order;
    std::vector<std::shared_ptr<Request>> queued;
    for (int i = 0; i < 6; ++i) {
      queued.push_back(requests.queue([&, i] {
        const std::lock_guard lock(mutex);
        order.push_back(i);
        return i;
      }));
    }
    std::thread other([&] { queued[static_cast<std::size_t>(round % 6)]->wait(); });
    if (round % 2 == 0) queued[3]->wait();
    CHECK(queued[5]->wait_for(seconds(60)));
    other.join();
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
    CHECK(queued[4]->get() == 4);
  }
}

TEST_CASE("a queued request is run by a caller that waits for it at once") {
  Progress progress;
  GroupRequests requests(progress);
  bool is_by_waiter = false;
  for (int i = 0; i < 1000 && !is_by_waiter; ++i) {
    Doer doer;
    requests.queue(doer.action())->wait();
    is_by_waiter = doer.is_this_thread();
  }
  CHECK(is_by_waiter);
}

TEST_CASE("queued requests of two groups do not wait for each other") {
  Progress progress;
  GroupRequests one(progress);
  GroupRequests two(progress);
  std::promise<void> word;
  const auto first = one.queue([heard = word.get_future().share()] {
    heard.wait();
    return 1;
  });
  const auto second = two.queue([&word] {
    word.set_value();
    return 2;
  });
  CHECK(first->wait_for(seconds(60)));
  CHECK(second->wait_for(seconds(60)));
}

TEST_CASE("requests that cannot be polled occupy a limited number of threads") {
  Progress progress;
  GroupRequests requests(progress);
  std::atomic<std::size_t> running = 0;
  std::promise<void> word;
  const auto heard = word.get_future().share();
  std::vector<std::shared_ptr<Request>> sent;
  for (std::size_t i = 0; i < Progress::kMostBlocking + 10; ++i) {
    sent.push_back(send(requests, [&running, heard] {
      ++running;
      heard.wait();
      return 0;
    }));
  }
  while (running < Progress::kMostBlocking) std::this_thread::yield();
  for (const auto& each : sent) each->is_done();
  CHECK(running == Progress::kMostBlocking);
  word.set_value();
  for (const auto& each : sent) CHECK(each->wait_for(seconds(60)));
}

TEST_CASE("wait_all waits for all operations, then throws the first error of the list") {
  Doer doer;
  const auto last = std::make_shared<TestRequest>(doer.action());
  const std::vector<Work> works{
      Work(std::make_shared<TestRequest>(doer.action(), never)),
      Work(std::make_shared<TestRequest>([]() -> int { throw std::runtime_error("one"); }, never)),
      Work(std::make_shared<TestRequest>([]() -> int { throw std::runtime_error("two"); }, never)),
      Work(), Work(last)};
  std::thread thread([&] { last->run(); });
  CHECK_THROWS_WITH(wait_all(works), "one");
  CHECK(doer.times == 2);
  thread.join();
  wait_all({works[0], works[3], works[4]}, milliseconds(1));
  wait_all({});
}

TEST_CASE("wait_all with a timeout names an operation that is not done") {
  const std::vector<Work> works{Work(), Work(std::make_shared<TestRequest>([] { return 0; }))};
  CHECK_THROWS_WITH(
      wait_all(works, milliseconds(5)),
      ContainsSubstring("wait_all") && ContainsSubstring("operation 1 is not done after 5 ms"));
}

TEST_CASE("wait_any returns an operation that is done or has failed") {
  std::atomic<bool> would_end = false;
  Doer doer;
  const std::vector<Work> works{
      Work(std::make_shared<TestRequest>(doer.action(), never)),
      Work(std::make_shared<TestRequest>([]() -> int { throw std::runtime_error("one"); },
                                         [&] { return would_end.load(); }))};
  CHECK_THROWS_WITH(wait_any(works, milliseconds(5)),
                    ContainsSubstring("no operation is done after 5 ms"));
  std::thread thread([&] {
    std::this_thread::sleep_for(milliseconds(5));
    would_end = true;
  });
  CHECK(wait_any(works) == 1);
  CHECK_THROWS_WITH(works[1].wait(), "one");
  CHECK(wait_any({works[0], Work()}) == 1);
  CHECK(doer.times == 0);
  thread.join();
  CHECK(test::error_of([] { wait_any({}); }).starts_with("usage: "));
}

// It does not fit in the clock when it is added to the current time.
TEST_CASE("the longest time is a timeout for every wait") {
  constexpr milliseconds kForever = milliseconds::max();
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend, kForever));
    std::vector<int> number{rank};
    if (rank == 1) std::this_thread::sleep_for(milliseconds(20));
    group.all_reduce(number, async_op).wait(kForever);
    const std::vector<Work> all{group.all_reduce(number, async_op)};
    expect(wait_any(all, kForever) == 0, "wait_any");
    wait_all({group.all_reduce(number, async_op)}, kForever);
    group.monitored_barrier({kForever});
    expect(number[0] == 4, "the sum");
  }));
}

TEST_CASE("a group refuses more pending operations than its limit, and remains usable") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    std::vector<int> data(16'384, rank);
    const auto one = [&](std::size_t i) { return Elements(&data[i], 1, DataType::I32); };
    if (rank == 0) {
      std::vector<Work> works;
      for (std::size_t i = 0; i < data.size(); ++i)
        works.push_back(world.recv(one(i), 1, async_op));
      int extra = 0;
      const auto is_refused = [&](const std::function<void()>& start) {
        const std::string error = test::error_of(start);
        return error.starts_with("usage: ") &&
               error.find("16384 asynchronous operations of this group are pending") !=
                   std::string::npos;
      };
      expect(is_refused([&] { world.recv(Elements(&extra, 1, DataType::I32), 1, async_op); }),
             "a limit");
      expect(is_refused([&] { world.barrier(async_op); }), "the same limit for collectives");
      world.monitored_barrier();
      wait_all(works);
      expect(data.front() == 1 && data.back() == 1, "rank 1's numbers");
    } else {
      world.monitored_barrier();
      for (std::size_t i = 0; i < data.size(); ++i) world.send(one(i), 0);
    }
    world.barrier(async_op).wait();
  }));
}

namespace {

std::size_t thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace

TEST_CASE("the number of threads does not grow with the pending messages or with the groups") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "gloo");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over(backend));
    const std::size_t before = thread_count();
    std::vector<int> in(300, -1);
    std::vector<int> out(300, rank);
    std::vector<Work> works;
    const auto one = [](std::vector<int>& data, std::size_t i) {
      return Elements(&data[i], 1, DataType::I32);
    };
    for (std::size_t i = 0; i < in.size(); ++i)
      works.push_back(world.recv(one(in, i), 1 - rank, async_op));
    std::this_thread::sleep_for(milliseconds(20));  // a thread polls them by then
    expect(thread_count() <= before + 2, "one thread for all messages");
    world.barrier();
    for (std::size_t i = 0; i < in.size(); ++i)
      works.push_back(world.send(one(out, i), 1 - rank, async_op));
    wait_all(works);
    expect(in == std::vector<int>(300, 1 - rank), "the other's numbers");
    world.barrier();
    if (backend == "gloo") return;  // has one thread per group
    std::vector<ProcessGroup> groups;
    for (int i = 0; i < 20; ++i) groups.push_back(world.new_group({0, 1}).value());
    for (ProcessGroup& group : groups) group.all_reduce(out, async_op).wait();
    expect(thread_count() <= before + 5, "no thread for each group");
    world.barrier();
  }));
}

TEST_CASE("collectives of two groups proceed when the ranks start them in different orders") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over(backend));
    ProcessGroup other = world.new_group({0, 1}).value();
    std::vector<int> first(1000, rank);
    std::vector<int> second(1000, rank);
    for (int i = 0; i < 20; ++i) {
      ProcessGroup& a = rank == 0 ? world : other;
      ProcessGroup& b = rank == 0 ? other : world;
      const Work one = a.all_reduce(rank == 0 ? first : second, async_op);
      const Work two = b.all_reduce(rank == 0 ? second : first, async_op);
      if (i % 2 == 0) one.wait();
      while (!one.is_completed() || !two.is_completed()) std::this_thread::yield();
    }
  }));
}

TEST_CASE(
    "a long message proceeds after its Work is dropped and while the sender is busy elsewhere") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    std::vector<int> data(1 << 20, rank);  // outlives the group, which alone knows when the message
                                           // is complete
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    if (rank == 0) {
      static_cast<void>(world.send(data, 1, async_op));
      world.monitored_barrier({seconds(60)});  // over the store: it does not drive the message
    } else {
      world.recv(data, 0);
      world.monitored_barrier({seconds(60)});
      expect(data.front() == 0 && data.back() == 0, "rank 0's numbers");
    }
    world.barrier();
  }));
}

TEST_CASE("a message completes for a rank that only polls, and for one that waits with a timeout") {
  const StoreProcess store;
  const std::size_t count = GENERATE(1u, 1u << 18);
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    const int other = 1 - rank;
    for (int round = 0; round < 5; ++round) {
      std::vector<int> out(count, rank + round);
      std::vector<int> in(count, -1);
      const Work sent = world.send(out, other, async_op);
      const Work received = world.recv(in, other, async_op);
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
