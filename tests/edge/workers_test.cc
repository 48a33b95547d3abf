#include "agent/workers/workers.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <variant>

#include "agent/process/descendants.h"
#include "agent/spawn/spawn.h"
#include "tests/support/catch.h"
#include "tests/support/machine.h"
#include "tests/support/pipe.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::Pipe;

// Runs rounds and records the listener's calls.
struct WorkersRecorder : Workers::Listener {
  explicit WorkersRecorder(WorkersSpec spec = {}) : workers(io, Log(), spec, *this) {}

  void on_all_started(const std::vector<int>& pids) override { started = pids; }
  void on_worker_failed(const WorkerEnd& end) override {
    failures.push_back(end);
    if (on_failed) on_failed();
  }
  void on_all_succeeded() override {
    ++successes;
    if (on_success) on_success();
  }
  void on_waiting(const LeftoverList& processes, milliseconds) override {
    if (processes.count > 0) ++waits;
    if (on_waiting_for) on_waiting_for();
  }
  void on_all_gone(const Leftovers& left) override {
    ++gone;
    leftovers = left;
    if (next_rounds-- > 0) workers.start(commands);
  }
  // Runs until all processes are gone; after that, nothing must keep the io_context running.
  void run(std::vector<Command> all) {
    commands = std::move(all);
    const auto begin = steady_clock::now();
    workers.start(commands);
    CHECK((failures.empty() && gone == 0));  // no callback from inside start()
    io.restart();
    io.run_for(std::chrono::seconds(20));
    took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
  }
  void at(milliseconds time, std::function<void()> action) {
    auto timer = std::make_shared<asio::steady_timer>(io);
    timer->expires_after(time);
    timer->async_wait([timer, action = std::move(action)](error_code) { action(); });
  }

  asio::io_context io{1};
  Workers workers;
  std::vector<Command> commands;
  std::vector<WorkerEnd> failures;
  std::vector<int> started;
  std::function<void()> on_failed;
  std::function<void()> on_success;
  std::function<void()> on_waiting_for;
  int waits = 0;
  int successes = 0;
  int gone = 0;
  int next_rounds = 0;
  Leftovers leftovers;
  milliseconds took{0};
};

Command shell(const std::string& script) { return {.argv = {"/bin/sh", "-c", script}}; }
Command tree(const std::string& how) { return {.argv = {testing::built("workers/tree"), how}}; }

// The tests first wait for a line from the worker, which is printed once its traps are set.
Command reporting(const Pipe& pipe, const std::string& script) {
  Command command = shell(script);
  command.stdout_fd = pipe.writing_end();
  return command;
}

}  // namespace

TEST_CASE("workers that return 0 are a success and leave nothing behind") {
  WorkersRecorder recorder;
  recorder.run(std::vector<Command>(64, shell("exit 0")));
  // Includes workers that exited before the last one was started.
  CHECK(recorder.started.size() == 64);
  CHECK(std::count(recorder.started.begin(), recorder.started.end(), 0) == 0);
  CHECK(recorder.successes == 1);
  CHECK(recorder.gone == 1);
  CHECK(recorder.failures.empty());
  CHECK(recorder.leftovers == Leftovers{});
  CHECK_FALSE(has_children());
}

TEST_CASE("a failed worker is reported with its status and the others are stopped") {
  WorkersRecorder recorder;
  // exec: a shell blocks signals while it starts a child, which does not get those sent meanwhile.
  recorder.run({shell("exec sleep 60"), shell("exit 3"), shell("exec sleep 60")});
  REQUIRE(recorder.failures.size() == 1);
  CHECK(recorder.failures[0].local_rank == 1);
  CHECK(recorder.failures[0].status == ExitStatus(Exited{3}));
  CHECK_FALSE(recorder.failures[0].stopped_by_us);
  CHECK(recorder.successes == 0);
  CHECK(recorder.gone == 1);
  CHECK(recorder.took < test::scaled(milliseconds(5'000)));
}

TEST_CASE("a worker killed from outside is a failure with the signal") {
  WorkersRecorder recorder;
  recorder.run({shell("kill -9 $$"), shell("sleep 60")});
  REQUIRE(recorder.failures.size() == 1);
  CHECK(recorder.failures[0].status == ExitStatus(Killed{.signal = SIGKILL}));
  CHECK_FALSE(recorder.failures[0].out_of_memory);
}

TEST_CASE("a program that cannot be executed fails the round after start() has returned") {
  WorkersRecorder recorder;
  recorder.run({shell("sleep 60"), {.argv = {"/no/such/program"}}, shell("sleep 60")});
  REQUIRE(recorder.failures.size() == 1);
  CHECK(recorder.failures[0].local_rank == 1);
  CHECK(recorder.failures[0].pid == 0);
  CHECK(recorder.failures[0].status == ExitStatus(NotStarted{ENOENT}));
  CHECK(recorder.gone == 1);
}

TEST_CASE("all workers that failed before the loop ran are failures, in the order seen") {
  WorkersRecorder recorder;
  // All have exited before the io_context runs.
  recorder.commands.assign(5, shell("exit 9"));
  recorder.workers.start(recorder.commands);
  REQUIRE(testing::eventually(
      [&recorder] {
        const std::vector<int> pids = recorder.workers.pids();
        return std::all_of(pids.begin(), pids.end(), [](int pid) {
          siginfo_t info{};
          return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == pid;
        });
      },
      milliseconds(10'000)));
  recorder.io.run_for(std::chrono::seconds(10));
  CHECK(recorder.failures.size() == 5);
  CHECK(recorder.gone == 1);
}

TEST_CASE("a worker that ignores SIGTERM is killed at the deadline, which is not a failure") {
  WorkersRecorder recorder({.shutdown_timeout = milliseconds(300)});
  Pipe pipe;
  recorder.at(milliseconds(0), [&] {
    pipe.read_line();
    recorder.workers.stop();
  });
  recorder.run({reporting(pipe, "trap '' TERM; echo up; while :; do sleep 60; done")});
  CHECK(recorder.failures.empty());
  CHECK(recorder.gone == 1);
  CHECK(recorder.took >= milliseconds(300));
  CHECK(recorder.took < test::scaled(milliseconds(30'000)));
}

TEST_CASE("a kill skips the wait for the deadline") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.at(milliseconds(0), [&] {
    pipe.read_line();
    recorder.workers.stop();
    recorder.workers.kill_now();
  });
  recorder.run({reporting(pipe, "trap '' TERM; echo up; while :; do sleep 60; done")});
  CHECK(recorder.gone == 1);
  CHECK(recorder.took < test::scaled(milliseconds(30'000)));
}

TEST_CASE("stop sends the given signal to every worker") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.at(milliseconds(0), [&] {
    for (int i = 0; i < 3; ++i) CHECK(pipe.read_line() == "up");
    recorder.workers.stop(SIGINT);
  });
  recorder.run(std::vector<Command>(
      3, reporting(pipe, "trap 'echo INT; exit 0' INT; echo up; while :; do sleep 0.01; done")));
  CHECK(pipe.read_all() == "INT\nINT\nINT\n");
  CHECK(recorder.successes == 0);
}

TEST_CASE("a suspended worker is continued so that it can handle SIGTERM") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.at(milliseconds(0), [&] {
    pipe.read_line();
    const int pid = recorder.workers.pids()[0];
    kill(pid, SIGSTOP);
    siginfo_t info{};
    CHECK(waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED) == 0);
    recorder.workers.stop();
  });
  recorder.run(
      {reporting(pipe, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")});
  CHECK(pipe.read_all() == "bye\n");
  CHECK(recorder.took < test::scaled(milliseconds(5'000)));
}

TEST_CASE("signals are forwarded to the workers and change nothing else") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.at(milliseconds(0), [&] {
    for (int i = 0; i < 2; ++i) CHECK(pipe.read_line() == "up");
    recorder.workers.pass_on(SIGUSR1);
  });
  recorder.run(std::vector<Command>(
      2, reporting(
             pipe,
             "exec 2>&-; trap 'echo USR1; exit 0' USR1; echo up; while :; do sleep 0.01; done")));
  CHECK(pipe.read_all() == "USR1\nUSR1\n");
  CHECK(recorder.successes == 1);
}

TEST_CASE("processes that workers leave running after success are terminated and reported") {
  const auto policy = GENERATE(LeftoverPolicy::Wait, LeftoverPolicy::Kill);
  WorkersSpec spec{.shutdown_timeout = milliseconds(200), .leftovers = policy};
  WorkersRecorder recorder(spec);
  recorder.run({tree("leave"), tree("leave")});
  CHECK(recorder.successes == 1);
  CHECK(recorder.gone == 1);
  CHECK(recorder.leftovers.terminated.count == 12);
  CHECK(recorder.leftovers.terminated.listed[0].name == "tree");
  CHECK(recorder.leftovers.unkillable.count == 0);
  CHECK_FALSE(has_children());
}

TEST_CASE("a process that finishes after its worker is waited for, and reported once") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.run({reporting(pipe, "(sleep 2; echo uploaded) & exit 0")});
  CHECK(pipe.read_all() == "uploaded\n");
  CHECK(recorder.successes == 1);
  CHECK(recorder.gone == 1);
  CHECK(recorder.waits == 1);
  CHECK(recorder.leftovers == Leftovers{});
  CHECK(recorder.took < test::scaled(milliseconds(15'000)));  // the wait ended with the process
}

TEST_CASE("a stop ends the wait for leftover processes") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.at(milliseconds(0), [&] {
    pipe.read_line();
    recorder.on_waiting_for = [&] { recorder.workers.stop(SIGTERM); };
  });
  recorder.run({reporting(pipe, "(trap 'exit 0' TERM; while :; do sleep 0.01; done) & echo up")});
  CHECK(recorder.gone == 1);
  CHECK(recorder.took < test::scaled(milliseconds(15'000)));
  CHECK_FALSE(has_children());
}

TEST_CASE("the end of leftover processes is noticed even if SIGCHLD was blocked at the start") {
  sigset_t child_ended;
  sigset_t before;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &child_ended, &before) == 0);
  WorkersRecorder recorder;
  recorder.run({shell("sleep 1 & exit 0")});
  CHECK(recorder.gone == 1);
  CHECK(recorder.leftovers == Leftovers{});
  CHECK_FALSE(has_children());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("kept processes are reported and run on until a stop") {
  WorkersRecorder recorder({.leftovers = LeftoverPolicy::Keep});
  Command worker = shell("sleep 100 & exit 0");
  worker.environment = {{"RANK", "7"}};
  recorder.run({worker});
  REQUIRE(recorder.gone == 1);
  REQUIRE(recorder.leftovers.kept.count == 1);
  CHECK(recorder.leftovers.kept.listed[0].name == "sleep");
  CHECK(recorder.leftovers.kept.listed[0].rank == 7);
  CHECK(kill(recorder.leftovers.kept.listed[0].pid, 0) == 0);
  CHECK(recorder.workers.has_kept());
  recorder.workers.stop();
  recorder.io.restart();
  recorder.io.run_for(std::chrono::seconds(20));
  CHECK(recorder.gone == 2);
  CHECK(recorder.leftovers.kept.count == 0);
  CHECK_FALSE(recorder.workers.has_kept());
  CHECK_FALSE(has_children());
}

// A shell without exec dies from the SIGTERM to its process group; its child handles the signal.
TEST_CASE("a stopped worker's child has the whole shutdown timeout after its leader has exited") {
  const bool is_failure = GENERATE(false, true);
  WorkersRecorder recorder;
  Pipe pipe;
  const std::string child =
      "trap 'sleep 2; echo saved; exit 0' TERM; echo up; while :; do sleep 0.01; done";
  const auto begin = [&] { pipe.read_line(); };
  std::vector<Command> workers{reporting(pipe, "sh -c \"" + child + "\"; exit 0")};
  if (is_failure) {
    Pipe* const up = &pipe;
    recorder.at(milliseconds(0), [&, up] {
      up->read_line();
      kill(recorder.workers.pids()[1], SIGKILL);
    });
    workers.push_back(shell("exec sleep 60"));
  } else {
    recorder.at(milliseconds(0), [&] {
      begin();
      recorder.workers.stop();
    });
  }
  recorder.run(workers);
  CHECK(pipe.read_all() == "saved\n");
  CHECK(recorder.gone == 1);
  CHECK(recorder.failures.size() == (is_failure ? 1 : 0));
  CHECK(recorder.took <
        test::scaled(milliseconds(15'000)));  // the round ends when no process is left
}

TEST_CASE("a child that a worker starts while the stop signal reaches it is stopped, too") {
  WorkersRecorder recorder;
  Pipe pipe;
  Command worker = tree("spawn");
  worker.stdout_fd = pipe.writing_end();
  recorder.at(milliseconds(0), [&] {
    pipe.read_line();
    recorder.workers.stop();
  });
  recorder.run({worker, shell("exec sleep 60")});
  CHECK(recorder.gone == 1);
  CHECK(recorder.failures.empty());
  CHECK(recorder.took < test::scaled(milliseconds(15'000)));  // less than the shutdown timeout
  CHECK_FALSE(has_children());
}

TEST_CASE("a process gets the stop signal once, also if its worker dies of it") {
  WorkersRecorder recorder({.shutdown_timeout = milliseconds(1000)});
  Pipe pipe;
  // Two workers die at different times, and there is a look at the processes after each.
  const std::string child = "trap 'echo term' TERM; echo up; while :; do sleep 0.01; done";
  recorder.at(milliseconds(0), [&] {
    pipe.read_line();
    recorder.workers.stop();
  });
  recorder.run({reporting(pipe, "sh -c \"" + child + "\"; exit 0"),
                shell("trap 'sleep 0.3; exit 0' TERM; while :; do sleep 0.01; done")});
  CHECK(pipe.read_all() == "term\n");
  CHECK(recorder.gone == 1);
}

TEST_CASE("the agent's tools are ended with the workers but are not leftover processes") {
  for (const bool is_own : {true, false}) {
    WorkersRecorder recorder({.shutdown_timeout = milliseconds(300)});
    recorder.on_success = [&] {
      const auto spawned = spawn(shell("trap '' TERM; sleep 100"));
      const auto* tool = std::get_if<Spawned>(&spawned);
      REQUIRE(tool != nullptr);
      close(tool->pidfd);
      if (is_own) recorder.workers.disregard_group(tool->pid);
    };
    recorder.run({shell("exit 0")});
    CHECK(recorder.gone == 1);
    CHECK((recorder.leftovers.terminated.count == 0) == is_own);
    CHECK_FALSE(has_children());
  }
}

TEST_CASE("an adopted orphan that exits during a round does not remain a zombie") {
  WorkersRecorder recorder;
  Pipe pipe;
  recorder.at(milliseconds(0), [&] { pipe.read_line(); });
  // The worker exits only when its launcher has no zombie children.
  recorder.run({reporting(
      pipe,
      "(sleep 0.02 & echo $! >&2) 2>/dev/null; echo up; parent=$PPID; "
      "for i in $(seq 500); do sleep 0.01; "
      "ps -o stat= --ppid $parent | grep -q Z || [ $i -lt 10 ] || exit 0; done; exit 1")});
  CHECK(recorder.successes == 1);
}

TEST_CASE("no descendant of a failed worker remains") {
  const auto shutdown = GENERATE(milliseconds(0), milliseconds(200));
  WorkersRecorder recorder({.shutdown_timeout = shutdown});
  recorder.run({tree("fail"), tree("stay"), tree("stay")});
  CHECK(recorder.failures.size() == 1);
  CHECK(recorder.gone == 1);
  CHECK_FALSE(has_children());
  CHECK(recorder.took < test::scaled(milliseconds(3'000)));
}

TEST_CASE("a new round can be started from inside the previous round's end") {
  WorkersRecorder recorder;
  recorder.next_rounds = 20;
  recorder.run({shell("exit 0"), shell("exit 1"), shell("sleep 60")});
  CHECK(recorder.gone == 21);
  CHECK(recorder.failures.size() == 21);
}

TEST_CASE("a listener can stop the workers from inside a failure report") {
  WorkersRecorder recorder;
  recorder.on_failed = [&recorder] { recorder.workers.kill_now(); };
  recorder.run({shell("exit 1"), shell("trap '' TERM; while :; do sleep 60; done")});
  CHECK(recorder.gone == 1);
  CHECK(recorder.took < test::scaled(milliseconds(5'000)));
}

}  // namespace drun::agent
