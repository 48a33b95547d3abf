#include "agent/process/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/process/descendants.h"
#include "agent/process/scratch.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/spawn.h"
#include "rendezvous/job/outcome.h"

namespace drun::agent {
namespace {

// The agent gets it when the guardian dies. Nothing else uses SIGIO.
constexpr int kGuardianGone = SIGIO;

// The agent's end of the pair: its signal handler has no other way to know it than a static.
volatile int agent_end_fd = -1;

// The directories that the agent's signal handler removes.
constexpr std::size_t kMostDirectories = 8;
constexpr std::size_t kLongestPathBytes = 256;
// Removal from a file system that hangs is given up then.
constexpr std::chrono::seconds kRemovalLimit{5};
// The console must take the guardian's lines within this time.
constexpr int kConsoleLimitMs = 1000;
// With fewer, drun cannot start even one worker.
constexpr rlim_t kLeastFiles = 32;
// Abandoned directories are removed then, when the processor is not needed for the start.
constexpr timespec kStartTime{.tv_sec = 0, .tv_nsec = 100'000'000};
std::array<std::array<char, kLongestPathBytes>, kMostDirectories> to_remove{};
volatile std::sig_atomic_t to_remove_count = 0;

// Faults stay what they are, terminal stops too: Ctrl-Z stops the guardian, not the job.
bool is_forwarded(int signal) {
  for (const int kept : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS,
                         SIGTSTP, SIGTTIN, SIGTTOU, SIGCHLD})
    if (signal == kept) return false;
  if (signal > SIGSYS && signal < SIGRTMIN) return false;  // the C library's own
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN;
}

sigset_t guardian_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal = 1; signal <= SIGRTMAX; ++signal)
    if (is_forwarded(signal)) sigaddset(&set, signal);
  return set;
}

void set_disposition(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigfillset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// This process gets `signal` when the other end of the pair closes, as it does when that process
// dies. A signal arrives whatever the event loop is doing, and SIGCONT even in a stopped process
// (fcntl(2), F_SETSIG).
bool signal_at_close(int end, int signal) {
  return fcntl(end, F_SETOWN, getpid()) == 0 && fcntl(end, F_SETSIG, signal) == 0 &&
         fcntl(end, F_SETFL, O_ASYNC) == 0;
}

// Waits for a byte from the guardian, which is then notified of our end. So no worker starts before
// each is notified of the other.
bool await_guardian() {
  char go = 0;
  ssize_t got = 0;
  do got = recv(agent_end_fd, &go, 1, 0);
  while (got < 0 && errno == EINTR);
  return got == 1;
}

// Not getppid(): a dying process closes its descriptors before its children get a new parent.
// A reset is its end too: it had not read all that we sent.
bool is_guardian_gone() {
  char unused = 0;
  const ssize_t got = recv(agent_end_fd, &unused, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

void end_by_alarm(std::chrono::seconds limit) {
  set_disposition(SIGALRM, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  alarm(static_cast<unsigned>(limit.count()));
}

// As all that may be called in a signal handler. The job's processes are gone by now.
[[noreturn]] void end_with_removal() {
  end_by_alarm(kRemovalLimit);
  for (const bool are_secret : {true, false}) {
    for (std::sig_atomic_t i = 0; i < to_remove_count; ++i) {
      const char* path = to_remove[static_cast<std::size_t>(i)].data();
      if (holds_secret(path) == are_secret) remove_tree(path);
    }
  }
  _exit(128 + SIGKILL);
}

// In the agent, in the handler: whatever it was doing, the guardian is gone and so is the job.
void on_guardian_gone(int) {
  const int error_number = errno;
  if (is_guardian_gone()) {
    sweep({}, kSweepLimit);
    end_with_removal();
  }
  errno = error_number;
}

int be_agent(int end, const std::function<int()>& agent) {
  agent_end_fd = end;
  setsid();
  prctl(PR_SET_NAME, "drun-agent");
  become_subreaper();
  // Continues us if we are stopped when the guardian dies; SIGIO, already pending, then ends us.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  const bool is_watched = await_guardian();
  set_disposition(kGuardianGone, on_guardian_gone);
  signal_at_close(end, kGuardianGone);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // It may have died before we listened, with its byte sent or not.
  if (!is_watched || is_guardian_gone()) _exit(128 + SIGKILL);
  return agent();
}

// Keeps stderr, for its one line. A reader of our output must not wait for us.
void drop_descriptors(int end) {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
  }
  const auto kept = static_cast<unsigned>(end);
  if (kept > 3) close_descriptors(3, kept - 1);
  close_descriptors(kept + 1, ~0U);
}

// Reaps all children that have ended, and stores the agent's end if it is among them.
void reap_all(pid_t agent, std::optional<ExitStatus>& agent_end) {
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) == 0 && info.si_pid != 0) {
    if (info.si_pid == agent) agent_end = decode({.how = info.si_code, .status = info.si_status});
    info = {};
  }
}

// Called last: a file system that hangs blocks the write. A pipe or a terminal that stays full
// loses the lines.
void print(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += "drun: " + text + "\n";
  pollfd console{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (lines.empty() || poll(&console, 1, kConsoleLimitMs) <= 0) return;
  // A pipe that poll(2) reports as writable has room for this many bytes.
  const std::size_t size = std::min<std::size_t>(lines.size(), PIPE_BUF);
  if (write(STDERR_FILENO, lines.data(), size) < 0) return;  // no reader is left
}

// The data that the agent has left in the socket: records, each followed by a 0. A path is a
// directory to remove if the agent was killed; the others are about processes that outlive an agent
// that exited.
constexpr std::string_view kKeepRecord = "keep";
constexpr std::string_view kUnkillableRecord = "unkillable ";
constexpr std::size_t kMostUnkillable = 16;
constexpr std::size_t kMostRecordBytes =
    kMostDirectories * kLongestPathBytes + kMostUnkillable * 32 + 32;

struct AgentRecords {
  std::vector<std::string> directories;
  std::vector<int> unkillable;
  bool keeps_leftovers = false;
};

AgentRecords read_records(int end) {
  std::string text(kMostRecordBytes, '\0');
  const ssize_t size = recv(end, text.data(), text.size(), MSG_DONTWAIT);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  AgentRecords records;
  for (std::size_t begin = 0, end_at = 0; end_at < text.size(); begin = end_at + 1) {
    end_at = text.find('\0', begin);
    if (end_at == std::string::npos) break;
    const std::string record = text.substr(begin, end_at - begin);
    if (record.starts_with('/')) records.directories.push_back(record);
    if (record == kKeepRecord) records.keeps_leftovers = true;
    if (record.starts_with(kUnkillableRecord))
      records.unkillable.push_back(std::atoi(record.c_str() + kUnkillableRecord.size()));
  }
  return records;
}

void send_record(const std::string& record) {
  if (agent_end_fd >= 0)
    send(agent_end_fd, record.c_str(), record.size() + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Secrets first. A file system that hangs must not hang the guardian, so a child waits for it.
void remove_directories(std::vector<std::string> directories) {
  std::stable_partition(directories.begin(), directories.end(),
                        [](const std::string& path) { return holds_secret(path.c_str()); });
  const auto first_elsewhere = std::stable_partition(
      directories.begin(), directories.end(),
      [](const std::string& path) { return path.starts_with(kMemoryDirectory); });
  for (auto each = directories.begin(); each != first_elsewhere; ++each) remove_tree(each->c_str());
  if (first_elsewhere == directories.end()) return;
  const pid_t child = fork();
  if (child == 0) {
    end_by_alarm(kRemovalLimit);
    for (auto each = first_elsewhere; each != directories.end(); ++each) remove_tree(each->c_str());
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

[[noreturn]] void end_guardian(const ExitStatus& agent_end, int last_forwarded,
                               std::vector<int> foreign, int end) {
  const auto* killed = std::get_if<Killed>(&agent_end);
  const AgentRecords records = read_records(end);
  if (killed == nullptr && records.keeps_leftovers) _exit(exit_code(agent_end));
  std::vector<std::string> lines;
  if (killed != nullptr && killed->signal != last_forwarded)
    lines.push_back("the agent was ended by " + to_string(agent_end) +
                    "; stopped what was left of the job");
  if (killed == nullptr)
    foreign.insert(foreign.end(), records.unkillable.begin(), records.unkillable.end());
  const SweepResult left = sweep(foreign, kSweepLimit);
  if (left.was_blind)
    lines.emplace_back(
        "the processes below drun cannot be seen (is /proc hidden, or memory limited?); only the "
        "workers' process groups were killed, and processes that left them may still run");
  for (std::size_t i = 0; i < left.count; ++i)
    lines.push_back("process " + std::to_string(left.pids[i]) +
                    " could not be killed: it is stuck in the kernel, or another user's");
  if (killed != nullptr) remove_directories(records.directories);
  print(lines);
  _exit(exit_code(agent_end));
}

// Children that were here before us (`sidecar & exec drun ...`) are not the job's. While the agent
// lives, the job's orphans go to it, so all our other children, adopted ones too, are theirs.
std::vector<int> other_children(pid_t agent) {
  std::vector<int> children;
  if (!has_children()) return children;
  const Descendants found;
  for (const ProcessStat& process : found.all())
    if (process.parent == getpid() && process.pid != agent) children.push_back(process.pid);
  return children;
}

// Keeps the list when the agent died meanwhile: then the job's orphans are among our children.
void renew_foreign(std::vector<int>& foreign, pid_t agent) {
  std::vector<int> children = other_children(agent);
  siginfo_t info{};
  const int waited = waitid(P_PID, static_cast<id_t>(agent), &info, WEXITED | WNOHANG | WNOWAIT);
  if (waited == 0 && info.si_pid == 0) foreign = std::move(children);
}

[[noreturn]] void be_guardian(pid_t agent, int end, const sigset_t& signals,
                              std::vector<int> foreign) {
  drop_descriptors(end);
  signal_at_close(end, SIGCONT);
  send(end, "g", 1, MSG_NOSIGNAL);
  set_disposition(SIGPIPE, SIG_IGN);
  set_disposition(SIGTTOU, SIG_IGN);  // it may print while it is in the background
  std::optional<ExitStatus> agent_end;
  int last_forwarded = 0;
  bool is_started = false;
  while (true) {
    reap_all(agent, agent_end);
    if (agent_end) end_guardian(*agent_end, last_forwarded, foreign, end);
    siginfo_t info{};
    const int signal = sigtimedwait(&signals, &info, is_started ? nullptr : &kStartTime);
    if (signal < 0 && errno == EAGAIN && !std::exchange(is_started, true))
      remove_abandoned_scratch(kMemoryDirectory);
    if (signal == SIGCHLD && !foreign.empty()) renew_foreign(foreign, agent);
    if (signal <= 0 || signal == SIGCHLD) continue;
    if (signal == SIGCONT && info.si_code > 0) continue;  // from the kernel: the agent is dead
    if (kill(agent, signal) == 0 && signal != SIGCONT) last_forwarded = signal;
  }
}

}  // namespace

Result<int> run_guarded(const std::function<int()>& agent) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < kLeastFiles)
    return Error{ErrorCode::System, "cannot start the agent: the hard limit on open files is " +
                                        std::to_string(files.rlim_max) +
                                        ", and it needs at least " + std::to_string(kLeastFiles) +
                                        "; raise the limit (ulimit -n)"};
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return system_error("make a socket pair for the agent", errno);
  share_groups();
  become_subreaper();
  set_disposition(SIGCHLD, SIG_DFL);  // an inherited ignore would hide how children end
  const std::vector<int> foreign = other_children(0);
  const sigset_t signals = guardian_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t pid = fork();
  if (pid < 0) {
    const int error_number = errno;
    sigprocmask(SIG_SETMASK, &before, nullptr);
    for (const int end : ends) close(end);
    return system_error("start the agent process", error_number);
  }
  if (pid == 0) {
    close(ends[0]);
    return be_agent(ends[1], agent);
  }
  close(ends[1]);
  be_guardian(pid, ends[0], signals, foreign);
}

void remove_if_killed(const std::string& directory) {
  const auto index = static_cast<std::size_t>(to_remove_count);
  if (agent_end_fd < 0 || index == kMostDirectories || directory.size() >= kLongestPathBytes ||
      directory.empty() || directory.front() != '/')
    return;
  std::copy(directory.begin(), directory.end(), to_remove[index].begin());
  to_remove_count = to_remove_count + 1;  // the handler may run at any moment: the path is there
  send_record(directory);                 // stays in the socket until the agent is dead
}

void keep_leftovers_at_exit() { send_record(std::string(kKeepRecord)); }

void expect_unkillable(int pid) {
  static std::size_t count = 0;
  if (count++ < kMostUnkillable) send_record(std::string(kUnkillableRecord) + std::to_string(pid));
}

}  // namespace drun::agent
