#include "drun/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "drun/error.h"
#include "drun/process_group.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/start/hosted_store.h"
#include "worker_lib/start/processes.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostProcesses = 4096;

[[noreturn]] void refuse(const std::string& message) {
  throw WorkerError({.kind = WorkerError::Kind::Usage, .operation = "spawn", .message = message});
}

void check(int process_count) {
  if (process_count < 1 || process_count > kMostProcesses) {
    refuse(std::to_string(process_count) + " processes: expected 1 to " +
           std::to_string(kMostProcesses));
  }
  struct sigaction on_child {};
  sigaction(SIGCHLD, nullptr, &on_child);
  if (on_child.sa_handler == SIG_IGN || (on_child.sa_flags & SA_NOCLDWAIT) != 0) {
    refuse(
        "SIGCHLD is ignored, so the exit status of children is lost: restore its default action");
  }
  if (is_initialized()) {
    refuse(
        "there is a default group, whose connections children would share: call "
        "destroy_process_group() first, or spawn before init_process_group()");
  }
  if (const std::size_t count = worker::running_threads(); count > 1) {
    refuse("this program runs " + std::to_string(count) +
           " threads, which do not exist in a forked child: spawn before "
           "they are started");
  }
}

[[noreturn]] void fail_to(const char* action) {
  throw WorkerError({.kind = WorkerError::Kind::System,
                     .operation = "spawn",
                     .message = std::string("cannot ") + action + ": " + system_message(errno)});
}

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;

  explicit Pipe(int flags = 0) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | flags) != 0) fail_to("make a pipe");
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
};

// --- Child processes, which are started, watched and stopped together
//
// The destructor kills and reaps all remaining children.
// Thread:  the thread that created it; the kernel kills the children when that thread ends.

// The end of one child.
struct ChildEnd {
  std::optional<int> exit_code = std::nullopt;
  std::optional<int> signal = std::nullopt;
  std::string words = "";  // its final message; empty: none

  bool is_failure() const { return exit_code != 0; }
};

void flush_all() {
  std::cout.flush();
  std::fflush(nullptr);
}

class Children {
 public:
  // Returns the final message of a child that fails, up to 4 KiB; absent: it succeeds.
  using Body = std::function<std::optional<std::string>()>;

  Children() = default;
  ~Children() {
    signal_all(SIGKILL);
    for (Child& child : children_) {
      if (!child.end) reap(child);
    }
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  // Starts a child that runs `body`, which must not throw, and exits with 0 or 1.
  void start(const Body& body) {
    Pipe words(O_NONBLOCK);
    children_.reserve(children_.size() + 1);
    const pid_t parent = getpid();
    flush_all();  // or every child would print it again
    const pid_t pid = fork();
    if (pid < 0) fail_to("fork");
    if (pid == 0) run_child(parent, words.write_end.get(), body);
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
        {.pidfd = std::move(pidfd), .words = std::move(words.read_end), .end = std::nullopt});
  }

  // Waits until at least one more child has ended, and returns the indexes of those. Empty if the
  // deadline has passed or no child is left.
  std::vector<std::size_t> wait_any(std::optional<Clock::time_point> deadline) {
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

  // Children are numbered in the order of start.
  bool has_ended(std::size_t child) const { return children_[child].end.has_value(); }
  // Of a child that has ended.
  const ChildEnd& end_of(std::size_t child) const { return *children_[child].end; }
  std::size_t size() const { return children_.size(); }
  bool is_any_left() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return !child.end; });
  }

  // Sends a signal to all running children.
  void signal_all(int number) {
    for (const Child& child : children_) {
      if (!child.end) syscall(SYS_pidfd_send_signal, child.pidfd.get(), number, nullptr, 0);
    }
  }

 private:
  struct Child {
    UniqueFd pidfd;
    UniqueFd words;
    std::optional<ChildEnd> end;
  };

  [[noreturn]] static void run_child(pid_t parent, int words, const Body& body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it had ended before
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    const std::optional<std::string> failure = body();
    flush_all();
    if (!failure) _exit(0);
    // Up to PIPE_BUF a write is whole, and this pipe is empty.
    const std::size_t bytes = std::min<std::size_t>(failure->size(), PIPE_BUF);
    [[maybe_unused]] const ssize_t told = write(words, failure->data(), bytes);
    _exit(1);
  }

  static int poll_ms(std::optional<Clock::time_point> deadline) {
    if (!deadline) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    return static_cast<int>(std::clamp<long>(left.count(), 0, INT_MAX));
  }

  static void reap(Child& child) {
    // P_PIDFD, which not every libc's headers have; waitid(2), Linux 5.4.
    constexpr auto kPidfd = static_cast<idtype_t>(3);
    siginfo_t info{};
    while (waitid(kPidfd, static_cast<id_t>(child.pidfd.get()), &info, WEXITED) != 0) {
      if (errno != EINTR) break;
    }
    ChildEnd& end = child.end.emplace();
    if (info.si_code == CLD_EXITED) end.exit_code = info.si_status;
    if (info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) end.signal = info.si_status;
    std::array<char, PIPE_BUF> bytes{};
    const ssize_t count = read(child.words.get(), bytes.data(), bytes.size());
    if (count > 0) end.words.assign(bytes.data(), static_cast<std::size_t>(count));
    child.pidfd.reset();
    child.words.reset();
  }

  std::vector<Child> children_;
};

// --- The ranks

// By which the children wait until the store is there. One byte pair tells all: its port.
class Gate {
 public:
  void open(int process_count, std::uint16_t port) {
    for (int i = 0; i < process_count; ++i) {
      if (write(pipe_.write_end.get(), &port, sizeof port) != sizeof port) return;
    }
  }
  // In a child. Absent: the parent has given up.
  std::optional<std::uint16_t> wait() {
    pipe_.write_end.reset();
    std::uint16_t port = 0;
    ssize_t count = 0;
    do {
      count = read(pipe_.read_end.get(), &port, sizeof port);
    } while (count < 0 && errno == EINTR);
    if (count != sizeof port) return std::nullopt;
    return port;
  }

 private:
  Pipe pipe_;
};

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

void set_environment(int rank, int size, std::uint16_t port) {
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(size));
  set("LOCAL_WORLD_SIZE", std::to_string(size));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  set("TORCHELASTIC_USE_AGENT_STORE", "True");
  // What an agent said of the parent.
  for (const char* name :
       {"GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE",
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"}) {
    unsetenv(name);
  }
}

void tell(const std::exception& error, std::string& text) {
  text += error.what();
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    text += "; caused by: ";
    tell(cause, text);
  } catch (...) {
    text += "; caused by something that is not a std::exception";
  }
}

// The report of a child: the time of the exception by a clock that all processes share, the lost
// rank if the exception reports one, and the message.
struct WordsHead {
  std::int64_t at = 0;
  std::int64_t lost_rank = -1;
};

std::string last_words(const WordsHead& head, const std::string& message) {
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + message;
}

// The report if the body throws.
std::optional<std::string> run_body(const std::function<void(int rank)>& body, int rank) {
  std::string message;
  WordsHead head;
  try {
    body(rank);
    return std::nullopt;
  } catch (const std::exception& error) {
    tell(error, message);
    const auto* failure = dynamic_cast<const WorkerError*>(&error);
    const bool is_loss = failure != nullptr && failure->kind() == WorkerError::Kind::PeerLost;
    if (is_loss) head.lost_rank = failure->peer().value_or(-1);
  } catch (...) {
    message = "an exception that is not a std::exception";
  }
  head.at = Clock::now().time_since_epoch().count();
  return last_words(head, message);
}

struct Failure {
  SpawnError::Details details;
  WordsHead head;
};

// An end without an exception is not caused by another rank: it precedes all exceptions.
Failure failure_of(int rank, const ChildEnd& end) {
  Failure failure{.details = {.rank = rank, .exit_code = end.exit_code, .signal = end.signal},
                  .head = {}};
  if (end.words.size() >= sizeof failure.head) {
    std::memcpy(&failure.head, end.words.data(), sizeof failure.head);
    failure.details.message = end.words.substr(sizeof failure.head);
  }
  return failure;
}

// A rank that throws leaves its groups on the way, so that the others know of it, and may end,
// before it has. A rank that reports the loss of another is not the first if that one fails, too.
void look_for_who_was_lost(Children& ranks, Failure& first) {
  constexpr std::chrono::seconds kAtMost{2};
  const Clock::time_point deadline = Clock::now() + kAtMost;
  for (std::size_t looked = 0; looked < ranks.size(); ++looked) {
    if (first.head.lost_rank < 0) return;
    const auto lost = static_cast<std::size_t>(first.head.lost_rank);
    if (lost >= ranks.size()) return;
    while (!ranks.has_ended(lost)) {
      if (ranks.wait_any(deadline).empty()) return;
    }
    if (!ranks.end_of(lost).is_failure()) return;
    first = failure_of(static_cast<int>(lost), ranks.end_of(lost));
  }
}

void stop(Children& ranks, std::chrono::milliseconds grace) {
  ranks.signal_all(SIGTERM);
  const Clock::time_point deadline = worker::deadline_in(grace);
  while (ranks.is_any_left()) {
    if (ranks.wait_any(deadline).empty()) break;
  }
  ranks.signal_all(SIGKILL);
  while (ranks.is_any_left()) ranks.wait_any({});
}

std::string sentence(const SpawnError::Details& details) {
  std::string text = "rank " + std::to_string(details.rank);
  if (details.signal) {
    text += " was killed by signal " + std::to_string(*details.signal) + " (" +
            strsignal(*details.signal) + ")";
  } else {
    text += " failed with exit code " + std::to_string(details.exit_code.value_or(-1));
  }
  return details.message.empty() ? text : text + ": " + details.message;
}

}  // namespace

SpawnError::SpawnError(Details details)
    : std::runtime_error(sentence(details)), details_(std::move(details)) {}

void spawn(const std::function<void(int rank)>& body, int process_count,
           const SpawnOptions& options) {
  check(process_count);
  Children ranks;
  Gate gate;
  for (int rank = 0; rank < process_count; ++rank) {
    ranks.start([&]() -> std::optional<std::string> {
      const std::optional<std::uint16_t> port = gate.wait();
      if (!port) return "";
      set_environment(rank, process_count, *port);
      return run_body(body, rank);
    });
  }
  // After the forks, because it starts a thread.
  const worker::OpenStore store = worker::host_store("127.0.0.1", 0);
  gate.open(process_count, store.port);
  while (ranks.is_any_left()) {
    std::optional<Failure> first;
    for (const std::size_t child : ranks.wait_any({})) {
      if (!ranks.end_of(child).is_failure()) continue;
      Failure failure = failure_of(static_cast<int>(child), ranks.end_of(child));
      if (!first || failure.head.at < first->head.at) first = std::move(failure);
    }
    if (!first) continue;
    look_for_who_was_lost(ranks, *first);
    stop(ranks, options.grace);
    throw SpawnError(std::move(first->details));
  }
}

}  // namespace drun
