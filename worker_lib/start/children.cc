#include "worker_lib/start/children.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <utility>

#include "drun/error.h"
#include "rendezvous/base/result.h"

namespace drun::worker {
namespace {

// Not in every libc's headers; waitid(2), Linux 5.4.
constexpr auto kPidfd = static_cast<idtype_t>(3);

[[noreturn]] void fail_to(const char* action) {
  throw WorkerError({.kind = WorkerError::Kind::System,
                     .message = std::string("cannot ") + action + ": " + system_message(errno)});
}

void flush_all() {
  std::cout.flush();
  std::fflush(nullptr);
}

void read_nothing_from_stdin() {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
}

[[noreturn]] void run_child(pid_t parent, int words,
                            const std::function<int(const Children::Say& say)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it had ended before
  read_nothing_from_stdin();
  const int code = body([words](const std::string& text) {
    // Up to PIPE_BUF a write is whole, and this pipe is empty.
    const std::size_t size_bytes = std::min<std::size_t>(text.size(), PIPE_BUF);
    if (write(words, text.data(), size_bytes) < 0) return;
  });
  flush_all();
  _exit(code);
}

std::string read_words(int fd) {
  std::array<char, PIPE_BUF> bytes{};
  const ssize_t count = read(fd, bytes.data(), bytes.size());
  return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : "";
}

int poll_ms(std::optional<Children::Deadline> deadline) {
  if (!deadline) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<long>(left.count(), 0, INT_MAX));
}

}  // namespace

Children::~Children() {
  signal_all(SIGKILL);
  for (Child& child : children_) {
    if (!child.end) reap(child);
  }
}

void Children::start(const std::function<int(const Say& say)>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) fail_to("make a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  children_.reserve(children_.size() + 1);
  const pid_t parent = getpid();
  flush_all();  // or every child would print it again
  const pid_t pid = fork();
  if (pid < 0) fail_to("fork");
  if (pid == 0) run_child(parent, write_end.get(), body);
  // The child has not been reaped yet, so the pid is still valid.
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    const int error_number = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    errno = error_number;
    fail_to("watch a child process (Linux 5.4 or later is needed)");
  }
  children_.push_back(
      {.pidfd = std::move(pidfd), .words = std::move(read_end), .end = std::nullopt});
}

void Children::reap(Child& child) {
  siginfo_t info{};
  while (waitid(kPidfd, static_cast<id_t>(child.pidfd.get()), &info, WEXITED) != 0) {
    if (errno != EINTR) break;
  }
  child.end.emplace();
  if (info.si_code == CLD_EXITED) child.end->exit_code = info.si_status;
  if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) child.end->signal = info.si_status;
  child.end->words = read_words(child.words.get());
  child.pidfd.reset();
  child.words.reset();
}

std::vector<std::size_t> Children::wait_any(std::optional<Deadline> deadline) {
  std::vector<pollfd> watched;
  std::vector<std::size_t> whose;
  for (std::size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].end) continue;
    watched.push_back({.fd = children_[i].pidfd.get(), .events = POLLIN, .revents = 0});
    whose.push_back(i);
  }
  std::vector<std::size_t> ended;
  if (watched.empty()) return ended;
  while (poll(watched.data(), watched.size(), poll_ms(deadline)) < 0) {
    if (errno != EINTR) fail_to("wait for child processes");
  }
  for (std::size_t i = 0; i < watched.size(); ++i) {
    if (watched[i].revents == 0) continue;
    reap(children_[whose[i]]);
    ended.push_back(whose[i]);
  }
  return ended;
}

void Children::signal_all(int number) {
  for (const Child& child : children_) {
    if (!child.end) syscall(SYS_pidfd_send_signal, child.pidfd.get(), number, nullptr, 0);
  }
}

bool Children::is_any_left() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const Child& child) { return !child.end; });
}

}  // namespace drun::worker
