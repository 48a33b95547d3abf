#include "agent/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "agent/bind.h"
#include "agent/child_descriptors.h"

namespace drun::agent {
namespace {

// A sanitizer's runtime must not be entered twice in one memory: there the child gets a copy, as
// after fork, and only `Launch` is shared.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kMemory = 0;
constexpr int kStackSharing = MAP_SHARED;
#else
constexpr int kMemory = CLONE_VM;
constexpr int kStackSharing = MAP_PRIVATE;
#endif
constexpr std::size_t kStackBytes = 64 * 1024;

enum class Step { Binding, MemoryBinding, Starting };

// All the child needs; it lies at the far end of the child's stack, in shared memory.
struct Launch {
  const char* path = nullptr;
  const ExecImage* image = nullptr;
  std::array<int, 3> fds{};
  std::span<const ChildDescriptors::Range> ours;  // empty: the child has a copy of our table
  std::optional<std::uint64_t> descriptor_limit;
  std::uint64_t caught_signals = 0;  // bit n - 1: signal n has a handler of ours
  pid_t parent = 0;
  const Binding* binding = nullptr;
  // Written by the child.
  volatile int error_number = 0;
  volatile Step failed_step = Step::Starting;  // with error_number
  volatile int memory_error = 0;
};

bool is_ours_to_reset(int signal) {
  if (signal == SIGPIPE || signal == SIGCHLD) return true;
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL &&
         action.sa_handler != SIG_IGN;
}

std::uint64_t caught_signals() {
  std::uint64_t caught = 0;
  for (int signal = 1; signal <= 64; ++signal)
    if (is_ours_to_reset(signal)) caught |= std::uint64_t{1} << (signal - 1);
  return caught;
}

// Places the three descriptors at 0, 1, 2. First out of each other's way, then into place.
bool place_descriptors(std::array<int, 3> fds) {
  for (int target = 0; target < 3; ++target) {
    int& fd = fds[static_cast<std::size_t>(target)];
    if (fd < 3 && fd != target && (fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0) return false;
  }
  for (int target = 0; target < 3; ++target) {
    const int fd = fds[static_cast<std::size_t>(target)];
    if (fd == target ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, target) < 0) return false;
  }
  return true;
}

// What cannot be lowered stays: a worker with more descriptors than asked for does no harm.
void set_descriptor_limit(std::uint64_t soft) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = soft;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool place_worker(Launch& launch) {
  if (const int error = launch.binding->apply_cpus(); error != 0) {
    launch.error_number = error;
    launch.failed_step = Step::Binding;
    return false;
  }
  launch.memory_error = launch.binding->apply_memory();
  if (launch.memory_error == 0 || !launch.binding->is_memory_strict()) return true;
  launch.error_number = launch.memory_error;
  launch.failed_step = Step::MemoryBinding;
  return false;
}

// Runs in the child, in the parent's memory: async-signal-safe calls only, nothing allocated.
// Handlers go before the mask is emptied, or one of ours could run here. To return is to end by
// the exit system call (clone(2)): nothing of the parent's is flushed or destroyed.
int run_child(void* argument) {
  Launch& launch = *static_cast<Launch*>(argument);
  if (!launch.ours.empty() && !leave_descriptors(launch.ours)) {
    launch.error_number = errno;
    return 127;
  }
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) return 127;  // it died before prctl could watch it
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal <= 64; ++signal)
    if (launch.caught_signals >> (signal - 1) & 1) sigaction(signal, &standard, nullptr);
  if (launch.descriptor_limit) set_descriptor_limit(*launch.descriptor_limit);
  if (!place_worker(launch)) return 127;
  if (place_descriptors(launch.fds)) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(launch.path, launch.image->argv(), launch.image->environment());
    if (errno == ENOEXEC)
      execve("/bin/sh", launch.image->shell_argv(), launch.image->environment());
  }
  launch.error_number = errno;
  return 127;
}

// 0 when it can be executed, else errno.
int check_executable(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? 0 : errno;
}

// Puts the path to execute into `found` and returns 0, or returns the errno execvp would give.
int find_program(const std::string& name, std::string_view path, std::string& found) {
  if (name.empty()) return ENOENT;
  if (name.find('/') != std::string::npos) {
    found = name;
    return 0;
  }
  int error_number = ENOENT;
  while (true) {
    const std::size_t colon = path.find(':');
    const std::string_view directory = path.substr(0, colon);
    found.assign(directory);
    found += directory.empty() ? "" : "/";
    found += name;
    // Without a slash execve looks in the working directory: what an empty element means.
    const int error_here = check_executable(found);
    if (error_here == 0) return 0;
    if (error_here == EACCES) error_number = EACCES;
    if (colon == std::string_view::npos) return error_number;
    path.remove_prefix(colon + 1);
  }
}

void reap(pid_t pid) {
  siginfo_t ignored{};
  while (waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED) < 0 && errno == EINTR) {
  }
}

}  // namespace

class ChildStack {
 public:
  ChildStack()
      : base_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                   kStackSharing | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;
  ~ChildStack() {
    if (is_mapped()) munmap(base_, kStackBytes);
  }
  bool is_mapped() const { return base_ != MAP_FAILED; }
  void* base() const { return base_; }
  void* top() const { return static_cast<std::byte*>(base_) + kStackBytes; }

 private:
  void* base_;
};

class Spawner::Impl {
 public:
  explicit Impl(const ChildDescriptors* descriptors)
      : descriptors_(descriptors != nullptr && descriptors->is_usable() ? descriptors : nullptr) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (descriptors_ != nullptr) descriptors_->clear();
  }

  std::variant<Spawned, NotStarted, NotBound> spawn(const Command& command);

 private:
  // As execvp would find it. Workers that are alike look for one name on one PATH.
  int find(const Command& command);

  const ChildDescriptors* const descriptors_;  // null: children copy all
  const ChildStack stack_;  // of one child after the other: each leaves it before clone() returns
  const std::uint64_t caught_signals_ = caught_signals();
  std::string name_;    // last looked for
  std::string search_;  // on this PATH
  std::string path_;    // and found here; empty: not found
};

int Spawner::Impl::find(const Command& command) {
  const std::string_view search = find_variable(command, "PATH").value_or("/bin:/usr/bin");
  const std::string& name = command.argv[0];
  if (!path_.empty() && name == name_ && search == search_) return 0;
  name_ = name;
  search_ = search;
  const int error = find_program(name, search, path_);
  if (error != 0) path_.clear();
  return error;
}

std::variant<Spawned, NotStarted, NotBound> Spawner::Impl::spawn(const Command& command) {
  assert(!command.argv.empty());
  if (const int error = find(command); error != 0) return NotStarted{error};
  if (!stack_.is_mapped()) return NotStarted{ENOMEM};
  std::array<int, 3> fds{command.stdin_fd, command.stdout_fd, command.stderr_fd};
  if (descriptors_ != nullptr) {
    if (!descriptors_->lay_out(fds)) return NotStarted{errno};
    fds = descriptors_->laid_out();
  }
  const ExecImage image(command, path_);
  const Binding binding(command.placement);
  Launch& launch = *new (stack_.base()) Launch{
      .path = path_.c_str(),
      .image = &image,
      .fds = fds,
      .ours = descriptors_ != nullptr ? descriptors_->ours()
                                      : std::span<const ChildDescriptors::Range>(),
      .descriptor_limit = command.descriptor_limit,
      .caught_signals = caught_signals_,
      .parent = getpid(),
      .binding = &binding,
  };

  // Blocked around the clone: a handler of ours must not run in the child.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int pidfd = -1;
  const int files = descriptors_ != nullptr ? CLONE_FILES : 0;
  const pid_t pid = clone(run_child, stack_.top(),
                          kMemory | files | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &launch, &pidfd);
  const int clone_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  if (pid < 0) return NotStarted{clone_error};
  if (launch.error_number == 0)
    return Spawned{.pid = pid, .pidfd = pidfd, .memory_error = launch.memory_error};
  reap(pid);
  close(pidfd);
  if (launch.failed_step != Step::Starting)
    return NotBound{launch.error_number, launch.failed_step == Step::MemoryBinding};
  return NotStarted{launch.error_number};
}

Spawner::Spawner(const ChildDescriptors* descriptors)
    : impl_(std::make_unique<Impl>(descriptors)) {}

Spawner::~Spawner() = default;

std::variant<Spawned, NotStarted, NotBound> Spawner::spawn(const Command& command) {
  return impl_->spawn(command);
}

std::variant<Spawned, NotStarted, NotBound> spawn(const Command& command) {
  return Spawner(nullptr).spawn(command);
}

}  // namespace drun::agent
