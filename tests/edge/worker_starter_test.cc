// Tests the start of a node's workers with an exec that is slow.
#include "agent/spawn/worker_starter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "agent/workers/workers.h"
#include "tests/support/catch.h"
#include "tests/support/pipe.h"
#include "tests/support/stalled_program.h"

namespace drun::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using test::Pipe;
using test::StalledProgram;

struct StartRecorder : Workers::Listener {
  StartRecorder() : workers(io, Log(), {}, *this) {}

  void on_all_started(const std::vector<int>&) override {
    ++started;
    CHECK((failures.empty() && gone == 0));
  }
  void on_worker_failed(const WorkerEnd& end) override { failures.push_back(end); }
  void on_all_succeeded() override { ++successes; }
  void on_all_gone(const Leftovers&) override { ++gone; }

  void run(const std::vector<Command>& commands) {
    const auto begin = steady_clock::now();
    workers.start(commands);
    start_took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
    io.restart();
    io.run_for(std::chrono::seconds(60));
  }
  // Calls the function every few milliseconds until it returns true.
  void poll(std::function<bool()> action) {
    auto timer = std::make_shared<asio::steady_timer>(io);
    timer->expires_after(milliseconds(5));
    timer->async_wait([this, timer, action = std::move(action)](error_code) {
      if (!action()) poll(action);
    });
  }

  asio::io_context io{1};
  Workers workers;
  std::vector<WorkerEnd> failures;
  int started = 0;
  int successes = 0;
  int gone = 0;
  milliseconds start_took{0};
};

Command shell_command(const std::string& script) { return {.argv = {"/bin/sh", "-c", script}}; }

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

// Makes clone(2) fail in this process from now on if `flags & mask` equals `refused`.
bool refuse_clone(unsigned mask, unsigned refused, unsigned error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = 7, .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Returns 0 if a round of twenty workers ran and a worker that cannot be executed was rejected; 2
// if seccomp filters are not available.
int run_refused(unsigned mask, unsigned error) {
  const pid_t child = fork();
  if (child == 0) {
    if (!refuse_clone(mask, CLONE_VM, error)) _exit(2);
    StartRecorder good;
    good.run(std::vector<Command>(20, shell_command("exit 0")));
    StartRecorder bad;
    bad.run({shell_command("sleep 60"), {.argv = {"/no/such/program"}}});
    const bool is_right = good.successes == 1 && good.gone == 1 && bad.failures.size() == 1 &&
                          bad.failures[0].status == ExitStatus(NotStarted{ENOENT}) && bad.gone == 1;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

TEST_CASE("a slow exec blocks neither the event loop nor the other workers") {
  StalledProgram program;
  if (skips(program)) return;
  StartRecorder recorder;
  Pipe pipe;
  Command other = shell_command("echo runs");
  other.stdout_fd = pipe.writing_end();
  int turns = 0;
  recorder.poll([&] {
    if (!StalledProgram::is_waited_for() || ++turns < 50) return false;
    CHECK(recorder.started == 0);
    CHECK(recorder.workers.pids()[0] != 0);
    CHECK(pipe.read_line() == "runs");
    program.release();
    return true;
  });
  recorder.run({{.argv = {program.path()}}, other});
  CHECK(recorder.start_took < milliseconds(10'000));  // the kernel breaks a lease after 45 s
  CHECK(recorder.started == 1);
  CHECK(recorder.successes == 1);
  CHECK(recorder.gone == 1);
}

TEST_CASE("a worker that waits for its exec has no handler of drun, and gets no forwarded signal") {
  StalledProgram program;
  if (skips(program)) return;
  StartRecorder recorder;
  const auto before = std::signal(SIGUSR2, [](int) {});
  recorder.poll([&] {
    if (!StalledProgram::is_waited_for()) return false;
    const std::string status =
        testing::read_file("/proc/" + std::to_string(recorder.workers.pids()[0]) + "/status");
    const std::size_t caught = status.find("SigCgt:\t");
    REQUIRE(caught != status.npos);
    // Signals 32 and 33 are the C library's own.
    CHECK((std::stoull(status.substr(caught + 8), nullptr, 16) & ~(3ULL << 31)) == 0);
    recorder.workers.pass_on(SIGUSR2);
    program.release();
    return true;
  });
  recorder.run({{.argv = {program.path()}}});
  std::signal(SIGUSR2, before);
  CHECK(recorder.successes == 1);
}

TEST_CASE("workers beyond the limit of concurrent starts wait for a slot, and all of them run") {
  StalledProgram program;
  if (skips(program)) return;
  constexpr std::size_t kStalled = ChildDescriptors::kSlots;
  StartRecorder recorder;
  std::vector<Command> commands(kStalled, Command{.argv = {program.path()}});
  commands.resize(kStalled + 3, shell_command("exit 0"));
  recorder.poll([&] {
    if (!StalledProgram::is_waited_for()) return false;
    const std::vector<int> pids = recorder.workers.pids();
    CHECK(std::count(pids.begin(), pids.end(), 0) == 3);
    program.release();
    return true;
  });
  recorder.run(commands);
  CHECK(recorder.successes == 1);
}

TEST_CASE("a stop ends workers whose exec is pending, and those that have not started") {
  StalledProgram program;
  if (skips(program)) return;
  StartRecorder recorder;
  recorder.poll([&] {
    if (!StalledProgram::is_waited_for()) return false;
    recorder.workers.stop();
    return true;
  });
  recorder.run(std::vector<Command>(40, Command{.argv = {program.path()}}));
  CHECK(recorder.failures.empty());
  CHECK(recorder.successes == 0);
  CHECK(recorder.started == 1);
  CHECK(recorder.gone == 1);
}

TEST_CASE("if several workers cannot be executed, the first one fails the round") {
  StartRecorder recorder;
  std::vector<Command> commands(30, Command{.argv = {"/no/such/program"}});
  commands[0] = commands[1] = shell_command("sleep 60");
  recorder.run(commands);
  REQUIRE(recorder.failures.size() == 1);
  CHECK(recorder.failures[0].local_rank == 2);
  CHECK(recorder.failures[0].status == ExitStatus(NotStarted{ENOENT}));
  CHECK(recorder.started == 1);
  CHECK(recorder.gone == 1);
}

TEST_CASE("workers that start together do not inherit each other's descriptors") {
  const std::size_t before = open_descriptors();
  {
    StartRecorder recorder;
    std::vector<std::unique_ptr<Pipe>> pipes;
    std::vector<Command> commands;
    for (int i = 0; i < 40; ++i) {
      pipes.push_back(std::make_unique<Pipe>());
      commands.push_back(shell_command("ls -l /proc/self/fd | grep -c pipe:"));
      commands.back().stdout_fd = pipes.back()->writing_end();
    }
    recorder.run(commands);
    CHECK(recorder.successes == 1);
    // Each count includes ls's pipe to grep, and pipes that the test itself inherited.
    const std::string first = pipes.front()->read_all();
    for (std::size_t i = 1; i < pipes.size(); ++i) CHECK(pipes[i]->read_all() == first);
    CHECK_FALSE(first.empty());
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("if a sandbox refuses children that share memory, workers start one by one") {
  const auto error = static_cast<unsigned>(GENERATE(EPERM, EINVAL));
  const int beside = run_refused(CLONE_VM | CLONE_VFORK | CLONE_THREAD, error);
  if (beside == 2) {
    WARN("skipped: this kernel or container has no seccomp filters");
    return;
  }
  CHECK(beside == 0);
  CHECK(run_refused(CLONE_VM | CLONE_THREAD, error) == 0);
}

}  // namespace drun::agent
