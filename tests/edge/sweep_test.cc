// Tests how a job's processes are listed and stopped where /proc, or memory, is a problem.
#include "agent/process/descendants.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "agent/spawn/spawn.h"
#include "agent/workers/workers.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"
#include "tests/support/stalling_file_system.h"

namespace drun::agent {
namespace {

constexpr int kSkipped = 77;

int in_child(const std::function<int()>& action) {
  const pid_t child = fork();
  if (child == 0) _exit(action());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool hide_proc() {
  return unshare(CLONE_NEWNS) == 0 &&
         mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", "/proc", "tmpfs", 0, nullptr) == 0;
}

// Like strict overcommit when little memory is left: there is none for the list of processes.
[[maybe_unused]] bool limit_memory() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  if (!(file >> pages)) return false;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{4} << 20);
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

// Returns 0 if a worker and its child are killed although they cannot be listed.
int sweep_unseen(const std::function<bool()>& blind) {
  share_groups();
  become_subreaper();
  if (!blind()) return kSkipped;
  if (Descendants().is_whole()) return 1;
  const auto result = spawn({.argv = {"/bin/sh", "-c", "trap '' TERM; sleep 100 & wait"}});
  const auto* spawned = std::get_if<Spawned>(&result);
  if (spawned == nullptr) return 2;
  remember_group(spawned->pid);
  const SweepResult left = sweep({}, std::chrono::seconds(20));
  return left.was_blind || left.count > 0 ? 3 : 0;
}

// Keeps the file open until it starts a program, which it does when it can read a byte from `go`.
[[noreturn]] void exec_with(const std::string& file, int go) {
  const int fd = open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  char byte = 0;
  if (fd >= 0 && read(go, &byte, 1) == 1) execl("/bin/sleep", "sleep", "100", nullptr);
  _exit(1);
}

bool has_ended(pid_t child, int& status) { return waitpid(child, &status, WNOHANG) == child; }

struct LeftoverRecorder : Workers::Listener {
  explicit LeftoverRecorder(LeftoverPolicy leftovers = LeftoverPolicy::Kill)
      : workers(io,
                Log([this](LogLevel, std::string_view text) { said.append(text).append("\n"); }),
                {.leftovers = leftovers}, *this) {}
  void on_worker_failed(const WorkerEnd& end) override { failed_group = end.pid; }
  void on_all_succeeded() override { ++successes; }
  void on_all_gone(const Leftovers&) override {
    ++gone;
    is_group_left = failed_group != 0 && kill(-failed_group, 0) == 0;
  }
  std::string said;
  asio::io_context io{1};
  Workers workers;
  int successes = 0;
  int gone = 0;
  int failed_group = 0;
  bool is_group_left = false;  // when all were reported gone
};

}  // namespace

TEST_CASE("the sweep kills the workers' groups if /proc is hidden") {
  const int result = in_child([] { return sweep_unseen(hide_proc); });
  if (result == kSkipped) {
    WARN("skipped: /proc cannot be covered without root");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("the sweep kills the workers' groups if there is no memory to list processes") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("skipped: a sanitizer needs more addresses than a limit leaves");
#else
  CHECK(in_child([] { return sweep_unseen(limit_memory); }) == 0);
#endif
}

TEST_CASE(
    "leftover processes in a worker's group are stopped if /proc is hidden, with one warning") {
  const int result = in_child([] {
    if (!hide_proc()) return kSkipped;
    LeftoverRecorder recorder;
    for (int round = 1; round <= 2; ++round) {
      recorder.workers.start({{.argv = {"/bin/sh", "-c", "sleep 100 & exit 0"}}});
      recorder.io.restart();
      recorder.io.run_for(std::chrono::seconds(20));
      if (recorder.gone != round || recorder.successes != round) return 1;
    }
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) return 2;  // a child is left
    const std::size_t first = recorder.said.find("cannot be seen");
    if (first == std::string::npos) return 3;
    return recorder.said.find("cannot be seen", first + 1) == std::string::npos ? 0 : 4;
  });
  if (result == kSkipped) {
    WARN("skipped: /proc cannot be covered without root");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("leftover processes that are waited for or kept are said to be hidden if /proc is") {
  for (const LeftoverPolicy leftovers : {LeftoverPolicy::Wait, LeftoverPolicy::Keep}) {
    const int result = in_child([leftovers] {
      if (!hide_proc()) return kSkipped;
      LeftoverRecorder recorder(leftovers);
      recorder.workers.start({{.argv = {"/bin/sh", "-c", "sleep 2 & exit 0"}}});
      recorder.io.run_for(std::chrono::seconds(20));
      if (recorder.gone != 1 || recorder.successes != 1) return 1;
      return recorder.said.find("cannot be seen") == std::string::npos ? 2 : 0;
    });
    if (result == kSkipped) {
      WARN("skipped: /proc cannot be covered without root");
      return;
    }
    CHECK(result == 0);
  }
}

TEST_CASE("a notice that cannot be sent because /proc is hidden is warned of at once") {
  const int result = in_child([] {
    if (!hide_proc()) return kSkipped;
    LeftoverRecorder recorder;
    recorder.workers.start({{.argv = {"/bin/sh", "-c", "trap 'exit 0' USR1; sleep 100 & wait"}}});
    recorder.workers.stop_after_notice(SIGUSR1, std::chrono::seconds(60));
    for (int i = 0; i < 200 && recorder.said.empty(); ++i)
      recorder.io.run_for(std::chrono::milliseconds(100));
    const bool is_warned = recorder.said.find("cannot send SIGUSR1") != std::string::npos;
    const bool was_running = recorder.gone == 0;
    recorder.workers.kill_now();
    recorder.io.run_for(std::chrono::seconds(20));
    if (recorder.gone != 1) return 1;
    return is_warned && was_running ? 0 : 2;
  });
  if (result == kSkipped) {
    WARN("skipped: /proc cannot be covered without root");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("the list of processes is incomplete if /proc hides those of other users") {
  const int result = in_child([] {
    if (!hide_proc() || mount("none", "/proc", "proc", 0, "hidepid=2") != 0) return kSkipped;
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    const bool sees_child = Descendants().is_whole();
    // Group 0 sees all processes (gid= in proc(5)).
    constexpr uid_t kNobody = 65534;
    if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
        setresuid(kNobody, kNobody, 0) != 0)
      return kSkipped;
    const bool sees_hidden_child = Descendants().is_whole();
    if (setresuid(0, 0, 0) != 0) return 1;
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    if (!sees_child) return 2;
    return sees_hidden_child ? 3 : 0;
  });
  if (result == kSkipped) {
    WARN("skipped: /proc cannot be mounted without root");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("a worker's group has its time to end if /proc is hidden, also beside a spared process") {
  const int result = in_child([] {
    if (!hide_proc()) return kSkipped;
    LeftoverRecorder recorder;
    const pid_t spared = fork();
    if (spared == 0) {
      pause();
      _exit(0);
    }
    recorder.workers.spare(spared);
    recorder.workers.start({{.argv = {"/bin/sh", "-c", "(trap '' TERM; sleep 1) & exit 1"}}});
    for (int i = 0; i < 200 && recorder.gone == 0; ++i)
      recorder.io.run_for(std::chrono::milliseconds(100));
    kill(spared, SIGKILL);
    if (recorder.gone != 1 || recorder.failed_group == 0) return 1;
    return recorder.is_group_left ? 2 : 0;
  });
  if (result == kSkipped) {
    WARN("skipped: /proc cannot be covered without root");
    return;
  }
  CHECK(result == 0);
}

TEST_CASE("another job's process that is stuck in exec does not delay the list of processes") {
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: " << files.why());
    return;
  }
  const std::string file = files / "file";
  int go[2];
  REQUIRE(pipe2(go, O_CLOEXEC) == 0);
  const pid_t stuck = fork();
  if (stuck == 0) exec_with(file, go[0]);
  const std::string place = "/proc/" + std::to_string(stuck);
  const auto has_opened = [&] {
    std::error_code ec;
    for (const auto& fd : std::filesystem::directory_iterator(place + "/fd", ec))
      if (std::filesystem::read_symlink(fd, ec) == file) return true;
    return false;
  };
  REQUIRE(testing::eventually(has_opened));
  // As long as it is stuck, every reader of its stat is too, on the whole machine: milliseconds, if
  // the list does not wait. Its new memory has no arguments yet.
  files.stall();
  const bool has_begun = write(go[1], "g", 1) == 1;
  const auto has_no_arguments = [&] { return testing::read_file(place + "/cmdline").empty(); };
  const bool is_stuck = has_begun && testing::eventually(has_no_arguments);
  const pid_t lister = fork();  // the stuck process is not below it
  if (lister == 0) {
    const Descendants found;
    _exit(found.is_whole() && found.all().empty() ? 0 : 1);
  }
  int status = -1;
  const bool was_at_once = testing::eventually([&] { return has_ended(lister, status); });
  files.resume();
  if (!was_at_once) waitpid(lister, &status, 0);
  kill(stuck, SIGKILL);
  waitpid(stuck, nullptr, 0);
  close(go[0]);
  close(go[1]);
  CHECK(is_stuck);
  CHECK(was_at_once);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace drun::agent
