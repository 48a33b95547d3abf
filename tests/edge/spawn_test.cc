#include "agent/spawn/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "agent/spawn/child_descriptors.h"
#include "tests/support/catch.h"
#include "tests/support/pipe.h"
#include "tests/support/process.h"
#include "tests/support/stalling_file_system.h"

namespace drun::agent {
namespace {

using test::Pipe;
using testing::TemporaryDirectory;

ExitStatus wait_for(const Spawned& spawned) {
  siginfo_t info{};
  REQUIRE(waitid(P_PID, static_cast<id_t>(spawned.pid), &info, WEXITED) == 0);
  close(spawned.pidfd);
  return decode({.how = info.si_code, .status = info.si_status});
}

ExitStatus run(const Command& command) {
  const auto result = spawn(command);
  if (const auto* refusal = std::get_if<Refusal>(&result)) return std::get<NotStarted>(*refusal);
  return wait_for(std::get<Spawned>(result));
}

// Runs a shell script and returns its output.
std::string output_of(Command command) {
  Pipe pipe;
  command.stdout_fd = pipe.writing_end();
  const auto result = spawn(command);
  const std::string text = pipe.read_all();
  CHECK(wait_for(std::get<Spawned>(result)) == ExitStatus(Exited{0}));
  return text;
}

std::string output_of(const std::string& script) {
  return output_of(Command{.argv = {"/bin/sh", "-c", script}});
}

std::string write_program(const TemporaryDirectory& directory, const std::string& name,
                          const std::string& text, mode_t mode) {
  testing::write_file(directory / name, text);
  chmod((directory / name).c_str(), mode);
  return directory / name;
}

}  // namespace

TEST_CASE("a program runs and its exit code is returned") {
  CHECK(run({.argv = {"/bin/sh", "-c", "exit 42"}}) == ExitStatus(Exited{42}));
  CHECK(run({.argv = {"/bin/sh", "-c", "kill -9 $$"}}) == ExitStatus(Killed{.signal = 9}));
}

TEST_CASE("a program that cannot be executed is reported at once, with the reason") {
  const TemporaryDirectory directory;
  CHECK(run({.argv = {"/no/such/program"}}) == ExitStatus(NotStarted{ENOENT}));
  CHECK(run({.argv = {"no-such-program-anywhere"}}) == ExitStatus(NotStarted{ENOENT}));
  CHECK(run({.argv = {""}}) == ExitStatus(NotStarted{ENOENT}));
  CHECK(run({.argv = {directory.path()}}) == ExitStatus(NotStarted{EACCES}));
  const std::string plain = write_program(directory, "plain", "text", 0644);
  CHECK(run({.argv = {plain}}) == ExitStatus(NotStarted{EACCES}));
  const std::string lost = write_program(directory, "lost", "#!/no/such/interpreter\n", 0755);
  CHECK(run({.argv = {lost}}) == ExitStatus(NotStarted{ENOENT}));
  CHECK(run({.argv = {"/bin/true"}, .stdout_fd = 999}) == ExitStatus(NotStarted{EBADF}));
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no child process remains
}

TEST_CASE("a program is looked up on the worker's PATH") {
  const TemporaryDirectory first;
  const TemporaryDirectory second;
  write_program(first, "prog", "#!/bin/sh\nexit 1\n", 0644);
  write_program(second, "prog", "#!/bin/sh\nexit 7\n", 0755);
  const auto with_path = [](const std::string& path) {
    return Command{.argv = {"prog"}, .environment = {{"PATH", path}}};
  };
  CHECK(run(with_path(first.path() + ":" + second.path())) == ExitStatus(Exited{7}));
  CHECK(run(with_path("/nowhere:" + first.path())) == ExitStatus(NotStarted{EACCES}));
  CHECK(run(with_path("/nowhere")) == ExitStatus(NotStarted{ENOENT}));
  CHECK(run({.argv = {"true"}}) == ExitStatus(Exited{0}));  // without PATH: /bin:/usr/bin
}

TEST_CASE("a script without #! is run by the shell, as execvp does") {
  const TemporaryDirectory directory;
  const std::string script = write_program(directory, "script", "exit $1\n", 0755);
  CHECK(run({.argv = {script, "5"}}) == ExitStatus(Exited{5}));
}

TEST_CASE("a program gets exactly the given environment") {
  const std::vector<std::string> inherited =
      to_lines({{"A", "1"}, {"B", "2"}, {"LONG", std::string(100'000, 'x')}});
  const std::string text = output_of(Command{.argv = {"/usr/bin/env"},
                                             .inherited = inherited,
                                             .environment = {{"B", "3"}, {"C", "with\nline"}}});
  CHECK(text == "A=1\nLONG=" + std::string(100'000, 'x') + "\nB=3\nC=with\nline\n");
}

TEST_CASE("a worker leads a new process group") {
  const std::string text = output_of("set -- $(cat /proc/self/stat); echo $5; echo $$");
  const std::size_t end = text.find('\n');
  CHECK(text.substr(0, end + 1) == text.substr(end + 1));
}

TEST_CASE("a worker has default signal handling, except for signals that the user ignored") {
  struct sigaction before {};
  struct sigaction handler {};
  handler.sa_handler = [](int) {};
  sigaction(SIGUSR1, &handler, &before);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  sigset_t blocked;
  sigset_t mask_before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &mask_before);
  const std::string text = output_of(Command{.argv = {"/bin/cat", "/proc/self/status"}});
  sigset_t mask_after;
  sigprocmask(SIG_SETMASK, &mask_before, &mask_after);
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGHUP, SIG_DFL);
  sigaction(SIGUSR1, &before, nullptr);
  CHECK_THAT(text, ContainsSubstring("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000001\n"
                                     "SigCgt:\t0000000000000000\n"));
  CHECK(sigismember(&mask_after, SIGTERM) == 1);  // the parent's mask is unchanged
}

TEST_CASE("descriptors are placed correctly when they overlap") {
  Pipe out;
  Pipe error;
  const int saved[] = {dup(1), dup(2)};
  dup2(out.writing_end(), 2);  // swapped: the worker's stdout is our 2, its stderr our 1
  dup2(error.writing_end(), 1);
  const auto result =
      spawn({.argv = {"/bin/sh", "-c", "echo out; echo err >&2"}, .stdout_fd = 2, .stderr_fd = 1});
  dup2(saved[0], 1);
  dup2(saved[1], 2);
  for (const int fd : saved) close(fd);
  CHECK(wait_for(std::get<Spawned>(result)) == ExitStatus(Exited{0}));
  CHECK(out.read_all() == "out\n");
  CHECK(error.read_all() == "err\n");
}

TEST_CASE("a worker inherits only 0, 1, 2 and descriptors that the user left open") {
  Pipe ours;
  const int users = open("/dev/null", O_RDONLY);  // not close-on-exec
  const std::string text = output_of(Command{.argv = {"/bin/ls", "-l", "/proc/self/fd"}});
  close(users);
  CHECK_THAT(text, ContainsSubstring(" " + std::to_string(users) + " -> /dev/null"));
  const std::string ours_open = " " + std::to_string(ours.writing_end()) + " -> pipe:";
  CHECK(text.find(ours_open) == std::string::npos);
}

TEST_CASE("with a separate descriptor table a child inherits nothing that was opened later") {
  // None of these is close-on-exec.
  const int users = open("/dev/null", O_RDONLY);
  const int users_high = dup2(users, 300);
  const ChildDescriptors descriptors;
  REQUIRE(descriptors.is_usable());
  const int ours = open("/dev/zero", O_RDONLY);
  const int ours_high = dup2(ours, 301);
  Pipe pipe;
  Command command{.argv = {"/bin/ls", "-l", "/proc/self/fd"}, .stdout_fd = pipe.writing_end()};
  std::string text;
  {
    Spawner spawner(descriptors);
    const auto result = spawner.begin(command);
    const auto& begun = std::get<Spawner::Begun>(result);
    REQUIRE(begun.start != nullptr);
    CHECK(wait_for(begun.spawned) == ExitStatus(Exited{0}));
    begun.start->ended();
    CHECK_FALSE(begun.start->refusal().has_value());
    command.stdout_fd = 999;
    CHECK(error_number_of(std::get<Refusal>(spawner.begin(command))) == EBADF);
  }
  text = pipe.read_all();  // reads to the end: the spawner has closed its copy
  CHECK_THAT(text, ContainsSubstring(" " + std::to_string(users) + " -> /dev/null"));
  CHECK_THAT(text, ContainsSubstring(" " + std::to_string(users_high) + " -> /dev/null"));
  CHECK_THAT(text, !ContainsSubstring("/dev/zero"));
  CHECK(fcntl(ours, F_GETFD) == 0);  // our table is unchanged
  for (const int fd : {ours, ours_high, users, users_high}) close(fd);
}

// Closing a copy of a file's descriptor flushes the file. The program runs and may fill its output
// before we look: only a file system that is slow just then shows it.
TEST_CASE("the starter does not wait for the file system of a program's output") {
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: " << files.why());
    return;
  }
  const ChildDescriptors descriptors;
  REQUIRE(descriptors.is_usable());
  Spawner spawner(descriptors);
  const UniqueFd output(
      open((files / "output").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  const Command command{.argv = {"/bin/sleep", "600"}, .stdout_fd = output.get()};
  const auto result = spawner.begin(command);
  const auto& begun = std::get<Spawner::Begun>(result);
  pollfd sign{.fd = begun.start->sign(), .events = POLLIN, .revents = 0};
  REQUIRE(poll(&sign, 1, 10'000) == 1);
  files.stall();
  std::promise<void> looked;
  auto was_at_once = std::async(std::launch::async, [&] {
    const auto status = looked.get_future().wait_for(std::chrono::seconds(10));
    files.resume();
    return status == std::future_status::ready;
  });
  begun.start->look();
  looked.set_value();
  CHECK(was_at_once.get());
  kill(begun.spawned.pid, SIGKILL);
  CHECK(wait_for(begun.spawned) == ExitStatus(Killed{SIGKILL, false}));
  begun.start->ended();
}

TEST_CASE("thousands of consecutive short programs all return their exit codes") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kRuns = 100;  // each run copies the sanitizer's memory map: 50 ms
#else
  constexpr int kRuns = 2'000;
#endif
  for (int i = 0; i < kRuns; ++i) {
    const bool good = i % 3 != 0;
    const auto result = spawn({.argv = {good ? "/bin/true" : "/bin/false"}});
    if (!(wait_for(std::get<Spawned>(result)) == ExitStatus(Exited{good ? 0 : 1})))
      FAIL("run " << i);
  }
}

TEST_CASE("a placed program starts on its CPUs") {
  cpu_set_t ours;
  REQUIRE(sched_getaffinity(0, sizeof(ours), &ours) == 0);
  std::size_t last = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &ours)) last = cpu;
  WorkerPlacement placement{.cpus = {static_cast<int>(last)}, .cores = 1};
  Command command{.argv = {"/bin/cat", "/proc/self/status", "/proc/self/numa_maps"},
                  .placement = &placement};
  CHECK_THAT(output_of(command),
             ContainsSubstring("Cpus_allowed_list:\t" + std::to_string(last) + "\n"));
  cpu_set_t after;
  REQUIRE(sched_getaffinity(0, sizeof(after), &after) == 0);
  CHECK(CPU_EQUAL(&ours, &after));  // our own binding is unchanged
}

TEST_CASE("a program's memory comes from its nodes, preferred or only") {
  WorkerPlacement placement{.memory_nodes = {0}};
  placement.memory = GENERATE(MemoryPolicy::Prefer, MemoryPolicy::Strict, MemoryPolicy::None);
  const Command command{.argv = {"/bin/cat", "/proc/self/numa_maps"}, .placement = &placement};
  Pipe pipe;
  Command told = command;
  told.stdout_fd = pipe.writing_end();
  const auto result = spawn(told);
  const auto* spawned = std::get_if<Spawned>(&result);
  if (spawned == nullptr || spawned->memory_error != 0 ||
      access("/proc/self/numa_maps", R_OK) != 0) {
    if (spawned != nullptr) wait_for(*spawned);
    WARN("skipped: this kernel or container does not let memory be placed");
    return;
  }
  const std::string text = pipe.read_all();
  CHECK(wait_for(*spawned) == ExitStatus(Exited{0}));
  const bool prefers = placement.memory == MemoryPolicy::Prefer;
  const bool is_strict = placement.memory == MemoryPolicy::Strict;
  CHECK((text.find(" prefer:0 ") != text.npos || text.find(" prefer=static:0 ") != text.npos) ==
        prefers);
  CHECK((text.find(" bind:0 ") != text.npos) == is_strict);
}

TEST_CASE("a placement that the kernel refuses is reported with the reason, and nothing runs") {
  const std::array<WorkerPlacement, 2> nowhere{
      WorkerPlacement{.cpus = {100'000}},
      WorkerPlacement{.memory_nodes = {1023}, .memory = MemoryPolicy::Strict}};
  for (const WorkerPlacement& placement : nowhere) {
    const auto result = spawn({.argv = {"/bin/true"}, .placement = &placement});
    const auto* refusal = std::get_if<Refusal>(&result);
    REQUIRE(refusal != nullptr);
    const auto* refused = std::get_if<NotBound>(refusal);
    REQUIRE(refused != nullptr);
    CHECK(refused->error_number != 0);
    CHECK(refused->is_memory == placement.cpus.empty());
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  const WorkerPlacement wished{.memory_nodes = {1023}, .memory = MemoryPolicy::Prefer};
  const auto result = spawn({.argv = {"/bin/true"}, .placement = &wished});
  REQUIRE(std::holds_alternative<Spawned>(result));  // a preference only
  CHECK(std::get<Spawned>(result).memory_error != 0);
  wait_for(std::get<Spawned>(result));
}

}  // namespace drun::agent
