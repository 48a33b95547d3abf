// Tests the failure reports of a group: while threads wait for the store, and when a rank's process
// ends.
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "drun/backend.h"
#include "drun/process_group.h"
#include "tests/support/catch.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/own_keys.h"
#include "tests/support/ranks.h"
#include "tests/support/shm_ranks.h"
#include "worker_lib/base/cores.h"
#include "worker_lib/core/watch.h"
#include "worker_lib/shm/shm_backend.h"
#include "worker_lib/shm/wait.h"

namespace drun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::check_exited;
using test::error_of;
using test::expect;
using test::over;
using test::RankEnd;
using test::run_ranks;
using test::Say;
using test::StoreProcess;
using test::wait_for_end_of;
using Clock = std::chrono::steady_clock;

// Limits this process to `more` additional threads. Returns false if that is not possible here.
bool limit_threads(rlim_t more) {
  rlimit limit{.rlim_cur = 1, .rlim_max = 1};
  if (geteuid() == 0) {
    // The limit does not apply to root. It counts all threads of a user id, so use a fresh one.
    const auto user = static_cast<uid_t>(1'000'000 + getpid());
    if (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) return false;
    limit = {.rlim_cur = 20 + more, .rlim_max = 20 + more};
    if (more == 0) limit = {.rlim_cur = 1, .rlim_max = 1};
  }
  return setrlimit(RLIMIT_NPROC, &limit) == 0;
}

// A backend whose first operation fails, with a lost peer or another error. Records whether the
// cause was already in the store at the first abort.
class FailingBackend final : public Backend {
 public:
  FailingBackend(bool peer_ends, std::uint16_t port) : peer_ends_(peer_ends), port_(port) {}

  static inline std::optional<bool> was_published;

  std::string name() const override { return "failing"; }
  std::string refusal(const Call&) const override { return ""; }
  void run(const Call&, const Turn&) override {
    if (peer_ends_) throw BackendFailure(WorkerError::Kind::PeerLost, 1, "gone", true);
    throw BackendFailure(WorkerError::Kind::System, std::nullopt, "broken");
  }
  void abort() noexcept override {
    if (was_published) return;
    const auto store = connect_key_store("127.0.0.1", port_, seconds(10));
    was_published = store->has("drun/worker/order/0/1/first_cause", seconds(10));
  }

 private:
  const bool peer_ends_;
  const std::uint16_t port_;
};

}  // namespace

TEST_CASE("a failure's cause is in the store before the backend is aborted") {
  const bool peer_ends = GENERATE(true, false);
  const StoreProcess store;
  test::Ranks ranks{.size = 2, .port = store.port()};
  ranks.environment = {{"TORCHELASTIC_RUN_ID", "order"}};
  const auto ends = run_ranks(ranks, [&](int rank, const Say& say) {
    register_backend("failing", [&](const BackendContext&) {
      return std::make_unique<FailingBackend>(peer_ends, store.port());
    });
    ProcessGroup group = ProcessGroup::connect(over("failing"));
    if (rank == 1) return;
    error_of([&] { group.barrier(); });
    say(FailingBackend::was_published.value() ? "published" : "not yet");
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, ContainsSubstring("published"));
}

TEST_CASE("a failure that takes long to report does not delay the deadlines of other groups") {
  worker::Watch watch;
  std::promise<void> called;
  const std::shared_future<void> other = called.get_future().share();
  bool was_called = false;
  const auto on_late = [&] {
    was_called = other.wait_for(test::scaled(seconds(10))) == std::future_status::ready;
  };
  const auto on_others_late = [&] { called.set_value(); };
  {
    const worker::DeadlineGuard late(watch, Clock::now(), on_late);
    const worker::DeadlineGuard others_late(watch, Clock::now() + milliseconds(20), on_others_late);
    other.wait();
  }
  CHECK(was_called);
}

TEST_CASE("more gets than the store has connections each end with their own key or timeout") {
  const StoreProcess process;
  const auto store = connect_key_store("127.0.0.1", process.port(), seconds(10));
  std::vector<std::thread> threads;
  std::vector<std::string> ends(8);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    threads.emplace_back([&, i] {
      const bool is_set = i % 2 == 0;
      ends[i] = error_of([&] {
        store->get((is_set ? "set/" : "missing/") + std::to_string(i),
                   is_set ? milliseconds(20000) : milliseconds(1500));
      });
    });
  }
  std::this_thread::sleep_for(milliseconds(100));
  const auto began = Clock::now();
  for (std::size_t i = 0; i < ends.size(); i += 2)
    store->set("set/" + std::to_string(i), "", seconds(10));
  for (std::size_t i = 0; i < ends.size(); i += 2) threads[i].join();
  CHECK(Clock::now() - began < test::scaled(milliseconds(1000)));
  for (std::size_t i = 1; i < ends.size(); i += 2) threads[i].join();
  for (std::size_t i = 0; i < ends.size(); ++i) {
    INFO(i);
    CHECK_THAT(ends[i], StartsWith(i % 2 == 0 ? "no error" : "timeout: "));
  }
}

TEST_CASE("a key or value that is too large for a store is refused, and the store stays usable") {
  const StoreProcess process;
  const auto store = connect_key_store("127.0.0.1", process.port(), seconds(10));
  const std::string most(std::size_t{8} << 20, 'x');
  const std::string key(8191, 'k');
  const auto refused = [](const std::function<void()>& action) {
    const std::string error = error_of(action);
    INFO(error);
    CHECK_THAT(error, StartsWith("usage: the store's key \"k"));
    CHECK_THAT(error, ContainsSubstring("is too large; a store takes at most 8"));
  };
  refused([&] { store->set("k", most + "x", seconds(10)); });
  refused([&] { store->compare_set("k", "", most + "x", seconds(10)); });
  const std::string longer = key + "k";
  refused([&] { store->set(longer, "", seconds(10)); });
  refused([&] { store->get(longer, seconds(10)); });
  refused([&] { store->wait({"k", longer}, seconds(10)); });
  refused([&] { store->add(longer, 1, seconds(10)); });
  refused([&] { store->has(longer, seconds(10)); });
  refused([&] { store->remove(longer, seconds(10)); });
  store->set(key, most, test::scaled(seconds(10)));
  CHECK(store->get(key, test::scaled(seconds(10))) == most);
}

TEST_CASE("a pending get blocks no other operation on the store") {
  const StoreProcess process;
  const auto store = connect_key_store("127.0.0.1", process.port(), seconds(10));
  std::array<std::string, 2> got;
  std::vector<std::thread> waiting;
  for (std::size_t i = 0; i < got.size(); ++i) {
    waiting.emplace_back([&, i] { got[i] = store->get("late/" + std::to_string(i), seconds(50)); });
  }
  // Each of these would be delayed by a blocking get.
  for (int i = 0; i < 100; ++i) {
    CHECK(store->add("count", 1, seconds(10)) == i + 1);
    store->set("own", std::to_string(i), seconds(10));
    CHECK(store->get("own", seconds(10)) == std::to_string(i));
  }
  CHECK(store->compare_set("first", "", "me", seconds(10)) == "me");
  for (int i = 0; i < 2; ++i) store->set("late/" + std::to_string(i), "come", seconds(10));
  for (std::thread& thread : waiting) thread.join();
  for (const std::string& value : got) CHECK(value == "come");
}

TEST_CASE("a failure is reported while another thread waits in a monitored barrier") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(over("shm", seconds(50)));
    group.barrier();
    std::thread waiting;
    if (rank == 0) {
      waiting = std::thread([&] { error_of([&] { group.monitored_barrier({seconds(20)}); }); });
      std::this_thread::sleep_for(milliseconds(100));  // usually enough to reach the wait for the
                                                       // store
    }
    std::vector<int> number(1);
    const auto began = Clock::now();
    say(error_of([&] { group.recv(number, 1 - rank, {milliseconds(rank == 0 ? 300 : 40000)}); }));
    say(Clock::now() - began < seconds(10) ? "in time" : "too late");
    if (rank == 1) error_of([&] { group.monitored_barrier({seconds(1)}); });
    if (waiting.joinable()) waiting.join();
  });
  check_exited(ends);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring("recv(i32 x 1, from rank 1)"));
    CHECK_THAT(end.said, ContainsSubstring("in time"));
  }
}

TEST_CASE("a monitored barrier names a dead rank at once") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "gloo", "tcp");
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(over(backend, seconds(50)));
    group.barrier();
    if (rank == 2) raise(SIGKILL);
    if (rank == 1) return group.monitored_barrier({seconds(1)});
    const auto began = Clock::now();
    say(error_of([&] { group.monitored_barrier({seconds(40)}); }));
    say(Clock::now() - began < seconds(15) ? "in time" : "too late");
  });
  CHECK_THAT(ends[0].said,
             ContainsSubstring("peer lost: rank 0: monitored_barrier(): the process of rank 2 "
                               "ended before it took part"));
  CHECK_THAT(ends[0].said, ContainsSubstring("in time"));
}

TEST_CASE("monitored barriers leave a limited number of keys in the store") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    const auto keys = std::make_shared<test::OwnKeys>(store.port());
    InitOptions options = over("tcp");
    options.store = keys;
    options.rank = rank;
    options.world_size = 3;
    ProcessGroup group = ProcessGroup::connect(options);
    const std::size_t before = keys->keys().size();
    for (int i = 0; i < 40; ++i) group.monitored_barrier();
    const std::size_t left = keys->keys().size() - before;
    expect(rank == 0 ? left > 0 && left < 20 : left == 0, std::to_string(left) + " are left");
    group.barrier();
  }));
}

TEST_CASE("a rank that dies after rank 0 has left is still named") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [](int rank, const Say& say) {
    // Never destroyed, like the default group at the end of a program.
    ProcessGroup& group = *new ProcessGroup(ProcessGroup::connect(over("shm", seconds(50))));
    std::vector<int> first{static_cast<int>(getpid())};
    group.broadcast(first, 0);
    group.barrier();
    if (rank == 0) _exit(0);
    wait_for_end_of(first[0]);
    if (rank == 1) raise(SIGKILL);
    std::vector<int> number(1);
    const auto began = Clock::now();
    say(error_of([&] { group.recv(number, 1, {seconds(40)}); }));
    say(Clock::now() - began < seconds(15) ? "in time" : "too late");
    _exit(0);
  });
  CHECK_THAT(ends[2].said, ContainsSubstring("peer lost: rank 2: recv(i32 x 1, from rank 1)"));
  CHECK_THAT(ends[2].said, ContainsSubstring("its process ended"));
  CHECK_THAT(ends[2].said, ContainsSubstring("in time"));
}

TEST_CASE("over Gloo the error names a killed rank's process, not its connection") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(over("gloo", seconds(50)));
    // The kernel closes connections before it reports the end of the process.
    if (rank == 1) raise(SIGKILL);
    std::vector<float> data(1 << 20);
    say(error_of([&] { group.all_reduce(data); }));
  });
  for (const int rank : {0, 2}) {
    const std::string& said = ends[static_cast<std::size_t>(rank)].said;
    CHECK_THAT(said, ContainsSubstring("peer lost: rank " + std::to_string(rank)));
    CHECK_THAT(said, ContainsSubstring("the process of rank 1 has ended") ||
                         ContainsSubstring("rank 1 ended before it had done its part"));
  }
}

TEST_CASE("asynchronous operations are an error if no thread can be started") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(over("gloo", seconds(50)));
    group.barrier();
    std::vector<int> data(1000);
    if (rank == 1) return void(error_of([&] { group.recv(data, 0, /*tag=*/5); }));
    if (!limit_threads(0)) return say("no limit here");
    std::vector<int> one(1);
    say(error_of([&] { group.all_reduce(one, async_op); }));
    say(error_of([&] { group.send(data, 1, async_op); }));
    group.send(data, 1, /*tag=*/5);
  });
  CHECK(ends[0].exit_code == 0);
  if (ends[0].said == "no limit here\n") {
    WARN("skipped: this user may not take another user id");
    return;
  }
  CHECK_THAT(ends[0].said,
             ContainsSubstring("system: rank 0: all_reduce(i32 x 1, sum): cannot start"));
  CHECK_THAT(ends[0].said,
             ContainsSubstring("system: rank 0: send(i32 x 1000, to rank 1): cannot start"));
}

TEST_CASE("ranks that are bound to different cores poll before they sleep") {
  cpu_set_t cores;
  REQUIRE(sched_getaffinity(0, sizeof cores, &cores) == 0);
  if (CPU_COUNT(&cores) < 2 || worker::usable_cores() < 2) {
    WARN("skipped: fewer than two cores");
    return;
  }
  const bool are_apart = GENERATE(true, false);
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &cores)) numbers.push_back(i);
    }
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(numbers[are_apart ? static_cast<std::size_t>(rank) : 0], &own);
    expect(sched_setaffinity(0, sizeof own, &own) == 0, "sched_setaffinity");
    const auto parts = worker::shm::connect_parts(test::shm_context(rank, 2, store.port()));
    say(std::to_string(parts.cores.count()));
    say(worker::shm::spin_policy_for(2, parts.cores).looks > 0 ? "looks" : "sleeps");
  });
  check_exited(ends);
  for (const RankEnd& end : ends) CHECK(end.said == (are_apart ? "2\nlooks\n" : "1\nsleeps\n"));
}

TEST_CASE("a watch reports every late operation and no others") {
  worker::Watch watch;
  constexpr int kThreads = 40;  // more than the watch has slots at first
  std::atomic<int> late = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto count = [&late] { ++late; };
      for (int turn = 0; turn < 2000; ++turn) {
        const worker::DeadlineGuard guard(watch, Clock::now() + seconds(300), count);
      }
      const bool is_late = i % 2 == 0;
      const worker::DeadlineGuard guard(
          watch, Clock::now() + (is_late ? milliseconds(20) : milliseconds(300'000)), count);
      const auto patience = Clock::now() + seconds(40);
      while (late < kThreads / 2 && Clock::now() < patience) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(late == kThreads / 2);
}

TEST_CASE("a watch of more lifelines than descriptors sleeps, and reports their ends") {
  constexpr int kGroups = 200;
  const auto threads = [] {
    std::set<std::string> paths;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/task"))
      paths.insert(each.path());
    return paths;
  };
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  const UniqueFd lifeline(ends[0]);
  UniqueFd other_end(ends[1]);
  std::atomic<int> ended = 0;
  const std::set<std::string> before = threads();
  worker::Watch watch;
  const test::FewDescriptors few(kGroups / 4);
  for (int i = 0; i < kGroups; ++i)
    watch.add_lifelines({{lifeline.get(), 1}}, [&ended](int) { ++ended; });
  std::set<std::string> started = threads();
  for (const std::string& path : before) started.erase(path);
  REQUIRE(started.size() == 1);
  const auto is_asleep = [&] {
    std::string stat;
    std::getline(std::ifstream(*started.begin() + "/stat"), stat);
    return stat.at(stat.rfind(')') + 2) == 'S';
  };
  const auto patience = Clock::now() + test::scaled(seconds(20));
  int looks = 0;  // in a row that have found it asleep
  while (looks < 100 && Clock::now() < patience) looks = is_asleep() ? looks + 1 : 0;
  CHECK(looks == 100);
  CHECK(ended == 0);
  other_end.reset();
  while (ended < kGroups && Clock::now() < patience) std::this_thread::yield();
  CHECK(ended == kGroups);
}

}  // namespace drun
