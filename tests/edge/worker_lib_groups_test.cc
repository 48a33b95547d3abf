#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <future>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "drun/device_mesh.h"
#include "drun/key_store.h"
#include "drun/process_group.h"
#include "rendezvous/base/pulse_page.h"
#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/in_rank.h"
#include "tests/support/machine.h"
#include "tests/support/own_keys.h"
#include "tests/support/ranks.h"
#include "worker_lib/shm/shm_backend.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun {
namespace {

using test::check_exited;
using test::error_of;
using test::expect;
using test::over;
using test::RankEnd;
using test::Ranks;
using test::run_ranks;
using test::Say;
using test::StoreProcess;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Returns the sum of 10^rank over the group's ranks, numbered as in the world: 1 + 10 + 100 ...
int sum_of(ProcessGroup& group, int world_rank) {
  int digit = 1;
  for (int i = 0; i < world_rank; ++i) digit *= 10;
  std::vector<int> data{digit};
  group.all_reduce(data);
  return data[0];
}

// Starts a thread, and returns when it has gone to sleep in its body.
std::thread sleeping_thread(std::function<void()> body) {
  std::promise<int> started;
  std::thread thread([&started, body = std::move(body)] {
    started.set_value(gettid());
    body();
  });
  const std::string file =
      "/proc/self/task/" + std::to_string(started.get_future().get()) + "/stat";
  const auto is_asleep = [&file] {
    std::string stat;
    std::getline(std::ifstream(file), stat);
    return stat.at(stat.rfind(')') + 2) == 'S';
  };
  while (!is_asleep()) std::this_thread::yield();
  return thread;
}

}  // namespace

TEST_CASE("groups of some ranks work independently of the world and of each other") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  check_exited(run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over(backend));
    std::optional<ProcessGroup> odd = world.new_group({3, 1});
    std::optional<ProcessGroup> all_but_one = world.new_group({0, 2, 3});
    expect(odd.has_value() == (rank % 2 == 1), "only members get a group");
    expect(all_but_one.has_value() == (rank != 1), "only members get a group");
    if (odd) {
      expect(odd->rank() == (rank == 3 ? 0 : 1), "ranks are in the order that was asked for");
      expect(sum_of(*odd, rank) == 1010, "the odd ones");
    }
    if (all_but_one) expect(sum_of(*all_but_one, rank) == 1101, "all but rank 1");
    expect(sum_of(world, rank) == 1111, "the world");
    world.barrier();
  }));
}

TEST_CASE("split makes a group of each color, in the order of keys") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 5, .port = store.port()}, [](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect();
    const std::optional<int> color =
        rank == 4 ? std::nullopt : std::optional<int>(rank % 2 == 0 ? 7 : -3);
    std::optional<ProcessGroup> mine = world.split(color, -rank);
    expect(mine.has_value() == (rank != 4), "no color, no group");
    if (mine) {
      expect(mine->size() == 2 && mine->rank() == (rank < 2 ? 1 : 0), "ordered by key");
      expect(sum_of(*mine, rank) == (rank % 2 == 0 ? 101 : 1010), "its own color only");
    }
    world.barrier();
  }));
}

TEST_CASE("a split and a device mesh have one deadline for all that they do") {
  constexpr seconds kTimeout{8};  // below 10 s, so that the clock is exact
  const StoreProcess store;
  check_exited(run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say&) {
    std::vector<Deadline> deadlines;
    Clock::time_point late;  // rank 3 does its part then
    register_backend("shm", [&](const BackendContext& context) {
      deadlines.push_back(context.deadline);
      if (rank == 3) std::this_thread::sleep_until(late);
      return worker::connect_shm(context);
    });
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    // The others have begun their calls by then, on a loaded machine too.
    const auto soon = [&] {
      std::int64_t now = Clock::now().time_since_epoch().count();
      world.broadcast(now, 0);
      return Clock::time_point(Clock::duration(now)) + seconds(2);
    };
    deadlines.clear();
    late = soon();
    if (rank == 3) std::this_thread::sleep_until(late);
    world.split(rank % 2, 0, {kTimeout});
    if (rank != 3) expect(deadlines.at(0) < late + kTimeout, "a split");
    late = soon();
    init_device_mesh(world, {2, 2}, {"a", "b"}, {kTimeout});
    expect(deadlines.at(2) < late + kTimeout, "the second group of a mesh");
    world.barrier();
  }));
}

TEST_CASE("invalid ranks make no group") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [](int, const Say&) {
    ProcessGroup world = ProcessGroup::connect();
    for (const std::vector<int>& ranks :
         {std::vector<int>{}, std::vector<int>{0, 0}, std::vector<int>{2}, std::vector<int>{-1}}) {
      const std::string error = error_of([&] { world.new_group(ranks); });
      expect(error.find("usage: ") == 0 && error.find("from 0 to 1") != std::string::npos, error);
    }
    world.barrier();
  }));
}

TEST_CASE("asynchronous calls complete in order, also between synchronous ones") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    std::vector<std::vector<int>> data(8, std::vector<int>(1000, 1));
    std::vector<Work> works;
    for (std::vector<int>& each : data) works.push_back(group.all_reduce(each, async_op));
    std::vector<int> root_only{rank};
    group.broadcast(root_only, 2);
    expect(root_only[0] == 2, "the synchronous one");
    for (const Work& work : works) {
      expect(work.is_completed(), "what was started before a synchronous call is done after it");
      work.wait();
      expect(work.error() == nullptr, "no error");
    }
    for (const std::vector<int>& each : data) expect(each == std::vector<int>(1000, 3), "a sum");
    group.barrier(async_op).wait();
  }));
}

TEST_CASE("an asynchronous call returns at once while synchronous ones wait for their turn") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    const auto words = connect_key_store("127.0.0.1", store.port(), seconds(20));
    if (rank == 1) {
      words->wait({"it has returned"}, test::scaled(seconds(20)));
      for (int i = 0; i < 3; ++i) world.barrier();
      return;
    }
    std::thread first = sleeping_thread([&] { world.barrier(); });
    std::thread second = sleeping_thread([&] { world.barrier(); });
    const Work third = world.barrier(async_op);
    words->set("it has returned", "", seconds(20));
    third.wait();
    first.join();
    second.join();
  }));
}

TEST_CASE("a synchronous call that waits for its turn keeps its own timeout") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup world = ProcessGroup::connect(over("shm"));
    if (rank == 1) return say(error_of([&] { world.monitored_barrier({seconds(40)}); }));
    std::thread first = sleeping_thread([&] { say(error_of([&] { world.barrier(); })); });
    const auto began = Clock::now();
    const std::string error = error_of([&] { world.barrier({milliseconds(100)}); });
    expect(error.starts_with("timeout: "), error);
    expect(Clock::now() - began < test::scaled(seconds(10)), "in time");
    first.join();
  });
  CHECK(ends[0].exit_code == 0);
}

TEST_CASE("four groups of one rank enter a barrier", "[.page]") {
  ProcessGroup world = ProcessGroup::connect(over("shm"));
  ProcessGroup first = world.new_group({0}).value();
  ProcessGroup grandchild = first.new_group({0}).value();
  ProcessGroup last = first;
  for (int i = 2; i <= 1001; ++i) last = world.new_group({0}).value();
  for (ProcessGroup* group : {&world, &first, &grandchild, &last}) group->barrier();
}

TEST_CASE("the groups of a process are numbered differently in its heartbeat page") {
  std::string path = "/tmp/drun_pulse_XXXXXX";
  const UniqueFd page_file(mkstemp(path.data()));
  REQUIRE(page_file);
  REQUIRE(ftruncate(page_file.get(), kPulseBytes) == 0);
  const StoreProcess store;
  // In a new program: this one may have opened its page, or found that it has none.
  const auto ends = test::run_programs(
      {.size = 1, .port = store.port(), .environment = {{"DRUN_HEARTBEAT_FILE", path}}},
      "/proc/self/exe", {"four groups of one rank enter a barrier"});
  unlink(path.c_str());
  check_exited(ends);
  PulsePage page;
  REQUIRE(pread(page_file.get(), &page, sizeof page, 0) == static_cast<ssize_t>(sizeof page));
  std::set<std::uint32_t> numbers;
  for (const PulseEntry& entry : page.entries)
    if (entry.number > 0) numbers.insert(entry.group);
  CHECK(numbers.size() == 4);
  CHECK(numbers.count(0) == 1);
}

TEST_CASE("a group leaves nothing in the store") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm", "tcp", "gloo", "ucx");
  if (backend == "ucx" && !worker::has_ucx()) return;
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    const auto own = std::make_shared<test::OwnKeys>(store.port());
    InitOptions options = over(backend);
    options.store = own;
    options.rank = rank;
    options.world_size = 3;
    ProcessGroup world = ProcessGroup::connect(options);
    const std::set<std::string> before = own->left();
    for (int i = 0; i < 20; ++i) {
      world.new_group({2, 0, 1}).value().barrier();
      world.split(0, rank).value().barrier();
    }
    world.barrier();  // each rank has removed what it removes
    const std::set<std::string> after = own->left();
    expect(after == before, std::to_string(before.size()) + " keys, not " +
                                std::to_string(after.size()) + ", such as " + *after.rbegin());
    world.barrier();
  }));
}

TEST_CASE("messages of a batch match in any order") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    std::vector<int> mine(50'000, rank);
    std::vector<std::vector<int>> theirs(3, std::vector<int>(50'000, -1));
    std::vector<P2POp> batch;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      batch.push_back(P2POp::send(mine, peer, 1));
      batch.push_back(P2POp::recv(theirs[static_cast<std::size_t>(peer)], peer, 1));
    }
    for (const Work& work : batch_isend_irecv(group, batch)) work.wait();
    for (int peer = 0; peer < 3; ++peer) {
      const int expected = peer == rank ? -1 : peer;
      expect(theirs[static_cast<std::size_t>(peer)] == std::vector<int>(50'000, expected), "data");
    }
    std::vector<int> first(1);
    if (rank == 0) {
      const int one = group.recv(first, any_rank, 9).peer();
      expect(first[0] == one, "the received value is the sender's rank");
      const Work other = group.recv(first, any_rank, 9, async_op);
      expect(other.peer() == 3 - one && first[0] == 3 - one, "the other one");
    } else {
      group.send(rank, 0, 9, async_op).wait();
    }
    group.barrier();
  }));
}

TEST_CASE("a monitored barrier names the missing ranks, and the group remains usable") {
  const StoreProcess store;
  const bool names_all = GENERATE(false, true);
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect();
    if (rank % 2 == 0) {
      say(error_of([&] { group.monitored_barrier({milliseconds(400), names_all}); }));
    }
    say(error_of([&] { group.barrier(); }));
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, ContainsSubstring(names_all ? "timeout: rank 0: monitored_barrier(): "
                                                         "ranks 1, 3 did not come in time"
                                                       : "rank 1 (and maybe others) did not come"));
  CHECK_THAT(ends[2].said, ContainsSubstring("timeout: rank 2: monitored_barrier(): rank 0 "));
  CHECK_THAT(ends[0].said, ContainsSubstring("no error\n"));
}

TEST_CASE("the default group can be initialized once, queried anywhere, and destroyed explicitly") {
  const StoreProcess store;
  const Ranks ranks{
      .size = 2, .port = store.port(), .environment = {{"TORCHELASTIC_RUN_ID", "some run"}}};
  check_exited(run_ranks(ranks, [](int rank, const Say&) {
    expect(!is_initialized(), "not yet");
    expect(
        error_of([] { get_rank(); }).find("call init_process_group() first") != std::string::npos,
        "none to ask");
    destroy_process_group();
    for (int turn = 0; turn < 2; ++turn) {
      ProcessGroup group = init_process_group();
      expect(is_initialized() && get_rank() == rank && get_world_size() == 2, "rank and size");
      expect(get_local_rank() == rank && get_backend() == "shm", "local rank and backend");
      expect(error_of([] { init_process_group(); }).find("there is a default group already") !=
                 std::string::npos,
             "not twice");
      default_group().barrier();
      destroy_process_group();
      destroy_process_group();
      expect(!is_initialized(), "not any more");
      expect(
          error_of([&] { group.barrier(); }).find("the group was destroyed") != std::string::npos,
          "a handle of it");
    }
    expect(is_launched_by_agent() && get_restart_count() == 0, "as the environment says");
  }));
}

TEST_CASE("destroying a group ends a monitored barrier that waits") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    const std::shared_ptr<KeyStore> word =
        connect_key_store("127.0.0.1", store.port(), seconds(40));
    ProcessGroup group = ProcessGroup::connect(over("shm"));
    if (rank == 1) return word->wait({"let go"}, seconds(40));
    std::string error;
    std::thread waiting([&] { error = error_of([&] { group.monitored_barrier(); }); });
    std::this_thread::sleep_for(milliseconds(100));  // usually enough for it to wait
    const auto began = Clock::now();
    group.destroy();
    waiting.join();
    word->set("let go", "", seconds(40));
    expect(error.find("the group was destroyed") != std::string::npos, error);
    expect(Clock::now() - began < test::scaled(seconds(5)), "at once");
  }));
}

TEST_CASE("destroying a group wakes a waiting thread at once") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    // Rank 1 stays. A rank that leaves counts as lost, possibly before its message has been sent.
    const std::shared_ptr<KeyStore> word =
        connect_key_store("127.0.0.1", store.port(), seconds(40));
    ProcessGroup group = ProcessGroup::connect(over(backend));
    std::vector<int> data(1);
    if (rank == 1) {
      group.recv(data, 0);
      word->wait({"let go"}, seconds(40));
      return;
    }
    const Work waiting = group.barrier(async_op);
    group.send(data, 1);
    const auto began = Clock::now();
    group.destroy();
    const std::string error = error_of([&] { waiting.wait(); });
    word->set("let go", "", seconds(40));
    expect(error.find("the group was destroyed") != std::string::npos, error);
    expect(Clock::now() - began < test::scaled(seconds(5)), "at once");
  }));
}

TEST_CASE("a forked child is refused the use of its parent's group, which remains intact") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "tcp", "gloo");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    group.barrier();
    if (rank == 0) {
      const pid_t child = fork();
      if (child == 0) {
        const std::string error = error_of([&] { group.barrier(); });
        group.destroy();
        _exit(error.find("usage: ") == 0 && error.find("was forked") != std::string::npos ? 7 : 8);
      }
      int status = 0;
      waitpid(child, &status, 0);
      expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "refused in the child");
    }
    group.barrier();
  }));
}

TEST_CASE("a forked child is refused its parent's operations, which the parent completes") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "tcp", "gloo");
  check_exited(run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    const auto words = connect_key_store("127.0.0.1", store.port(), seconds(20));
    std::vector<int> data(100'000, rank);
    if (rank == 1) {
      words->wait({"the child has ended"}, seconds(40));
      group.send(data, 0);
      group.barrier();
      return;
    }
    const std::vector<Work> works{group.recv(data, 1, 0, async_op), group.barrier(async_op)};
    const pid_t child = fork();
    if (child == 0) {
      bool is_refused = wait_any(works) == 0;
      for (const Work& work : works) {
        const auto is_error = [&](const std::function<void()>& action) {
          const std::string error = error_of(action);
          return error.find("usage: ") == 0 && error.find("was forked") != std::string::npos;
        };
        is_refused = is_refused && work.is_completed() && work.error() != nullptr &&
                     is_error([&] { work.wait(); }) && is_error([&] { work.wait(seconds(1)); }) &&
                     is_error([&] { work.wait_stream(nullptr); }) &&
                     is_error([&] { work.peer(); }) && is_error([&] { wait_all({work}); });
      }
      _exit(is_refused ? 7 : 8);
    }
    int status = 0;
    waitpid(child, &status, 0);
    words->set("the child has ended", "", seconds(20));
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "refused in the child");
    wait_all(works);
    expect(data == std::vector<int>(100'000, 1), "the parent has received it");
  }));
}

TEST_CASE("a backend is chosen by name, and the error about an unknown one lists the known ones") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [](int, const Say& say) {
    std::vector<std::string> names{"gloo", "shm", "cpu:gloo", "shm+gloo", "tcp", "shm+tcp"};
    if (worker::has_ucx()) names.insert(names.end(), {"ucx", "shm+ucx"});
    for (const std::string& name : names) {
      ProcessGroup group = ProcessGroup::connect(over(name));
      say(group.backend());
      group.barrier();
    }
    say(error_of([] { ProcessGroup::connect(over("smoke")); }));
    say(error_of([] { ProcessGroup::connect(over("cpu:")); }));
    ProcessGroup group = ProcessGroup::connect(over("shm+gloo"));
    say(error_of([&] { group.all_reduce(Elements(nullptr, 0, DataType::F32, 0)); }));
    std::vector<float> floats(3);
    std::vector<int> integers(3);
    say(error_of([&] { group.all_reduce(floats, ReduceOp::Band); }));
    say(error_of([&] { group.all_reduce(integers, ReduceOp::Avg); }));
    group.barrier();
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, ContainsSubstring("gloo\nshm\ngloo\nshm\n"));
  CHECK_THAT(ends[0].said, ContainsSubstring("there is no backend \"smoke\"; there are: gloo"));
  CHECK_THAT(ends[0].said, ContainsSubstring("backend \"cpu:\" is neither a name nor cpu:name"));
  CHECK_THAT(ends[0].said, ContainsSubstring("unsupported: rank 0: all_reduce(f32 x 0, sum): shm "
                                             "works on memory of the host, not of a GPU"));
  CHECK_THAT(ends[0].said, ContainsSubstring("bits are combined of integers only"));
  CHECK_THAT(ends[0].said, ContainsSubstring("an average is made of floating-point numbers only"));
}

TEST_CASE("a rank that exits right after the last barrier does not disturb slower ranks") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  for (int turn = 0; turn < 20; ++turn) {
    check_exited(run_ranks({.size = 3, .port = store.port()}, [&](int, const Say&) {
      ProcessGroup::connect(over(backend)).barrier();
    }));
  }
}

TEST_CASE("with DRUN_DEBUG=1 Gloo's ranks also report different calls") {
  const StoreProcess store;
  const auto ends =
      run_ranks({.size = 3, .port = store.port(), .environment = {{"DRUN_DEBUG", "1"}}},
                [](int rank, const Say& say) {
                  ProcessGroup group = ProcessGroup::connect(over("gloo"));
                  std::vector<float> data(rank == 1 ? 1001 : 1000);
                  say(error_of([&] { group.all_reduce(data); }));
                });
  check_exited(ends);
  for (const RankEnd& end : ends) {
    CHECK_THAT(end.said, ContainsSubstring("mismatch: "));
    CHECK_THAT(end.said, ContainsSubstring("ranks 0, 2 call all_reduce(f32 x 1000, sum); rank 1 "
                                           "calls all_reduce(f32 x 1001, sum)"));
  }
}

TEST_CASE("a rank's end wakes all waiting ranks at once, on any backend") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup group = ProcessGroup::connect(over(backend));
    std::vector<float> data(10);
    group.barrier();
    if (rank == 2) raise(SIGKILL);
    const auto began = Clock::now();
    say(error_of([&] { group.all_reduce(data); }));
    // Generous, because the machine can be busy; the benchmark measures the real figure.
    if (Clock::now() - began > test::scaled(seconds(2))) say("too late");
  });
  for (const std::size_t rank : {0u, 1u, 3u}) {
    INFO(ends[rank].said);
    CHECK(ends[rank].exit_code == 0);
    CHECK_THAT(ends[rank].said, ContainsSubstring("peer lost: "));
    CHECK_THAT(ends[rank].said, ContainsSubstring("rank 2"));
    CHECK_THAT(ends[rank].said, !ContainsSubstring("too late"));
  }
}

TEST_CASE("late ranks name the rank that ended first, not one that had seen its end") {
  const StoreProcess store;
  const std::string operation = GENERATE("new_group", "monitored_barrier");
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup world = ProcessGroup::connect(over("shm+tcp"));
    const auto keys = connect_key_store("127.0.0.1", store.port(), seconds(20));
    if (rank == 0) keys->set("pid", std::to_string(getpid()), seconds(20));
    world.barrier();
    if (rank == 2) raise(SIGKILL);
    if (rank == 1) test::wait_for_end_of(std::stoi(keys->get("pid", seconds(20))));
    say(error_of([&] {
      if (operation == "new_group")
        world.new_group({0, 1, 2});
      else
        world.monitored_barrier({.timeout = seconds(50)});
    }));
  });
  for (const std::size_t rank : {0u, 1u}) {
    INFO(ends[rank].said);
    CHECK(ends[rank].exit_code == 0);
    CHECK_THAT(ends[rank].said, ContainsSubstring("the process of rank 2 ended before"));
  }
}

TEST_CASE("a rank's end wakes the ranks that create a group with it") {
  const StoreProcess store;
  const std::string backend = GENERATE("shm+tcp", "gloo", "tcp");
  const auto ends = run_ranks({.size = 4, .port = store.port()}, [&](int rank, const Say& say) {
    ProcessGroup world = ProcessGroup::connect(over(backend));
    world.barrier();
    if (rank == 0) return;
    if (rank == 2) raise(SIGKILL);
    const auto began = Clock::now();
    try {
      world.new_group({3, 2, 1});
    } catch (const WorkerError& error) {
      expect(error.peer() == 2, "the parent's number of the rank");
      say(error.what());
      expect(error.kind() == WorkerError::Kind::PeerLost, "peer lost");
    }
    expect(Clock::now() - began < test::scaled(seconds(20)), "long before the timeout");
  });
  for (const std::size_t rank : {1u, 3u}) {
    INFO(ends[rank].said);
    CHECK(ends[rank].exit_code == 0);
    CHECK_THAT(ends[rank].said,
               ContainsSubstring("rank " + std::to_string(rank) +
                                 ": new_group(): the process of rank 1 ended before it had "
                                 "connected (numbered as in the new group)"));
  }
}

}  // namespace drun
