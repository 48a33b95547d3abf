#include "agent/spawn/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/spawn/binding.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/raw_syscall.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
// Named: a type of an unnamed namespace cannot be a member of Spawner::Impl where sources are
// compiled together.
namespace spawning {

// A sanitizer's runtime must not be entered twice in one memory: there the child gets a copy, as
// after fork, and only its stack with `Launch` is shared. The same without raw system calls.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // gcc
constexpr bool kSharesMemory = false;
#elif defined(__has_feature)  // clang
constexpr bool kSharesMemory =
    kHasRawSyscalls && !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kSharesMemory = kHasRawSyscalls;
#endif
constexpr int kMemory = kSharesMemory ? CLONE_VM : 0;
constexpr std::size_t kStackBytes = 64 * 1024;

enum class Step { Binding, MemoryBinding, Starting };

// All the child needs; it lies at the far end of the child's stack, in shared memory.
struct Launch {
  const char* const* paths = nullptr;  // where the program may be; ends with a null
  bool is_lookup = false;              // along PATH
  ExecImage* image = nullptr;
  std::array<int, 3> fds{};  // the child's 0, 1 and 2, unless they come by the channel
  std::span<const ChildDescriptors::Range> ours;  // empty: the child has a copy of our table
  int network_fd = -1;                            // a namespace to enter; -1: none
  // -1: none. A socket that has the child's 0, 1 and 2 in a message. Gets one byte when the child
  // has left our table; exec closes it.
  int channel_fd = -1;
  std::optional<std::uint64_t> descriptor_limit;
  std::uint64_t caught_signals = 0;  // bit n - 1: drun has a handler for signal n
  pid_t parent = 0;
  const Binding* binding = nullptr;
  // Written by the child.
  std::atomic<int> error_number = 0;
  std::atomic<Step> failed_step = Step::Starting;  // with error_number
  std::atomic<int> memory_error = 0;
  // Cleared by the kernel when a child that shares our memory has left it (CLONE_CHILD_CLEARTID).
  std::atomic<int> tid = 1;
};
static_assert(sizeof(std::atomic<int>) == sizeof(pid_t));

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

// From here to run_child: in the child, see raw_syscall.h. Nothing is allocated, and nothing of the
// C library is called.

// The kernel's struct sigaction for SIG_DFL is all zeros, and so is an empty set of signals.
constexpr std::array<std::uint64_t, 8> kZeros{};
constexpr long kKernelSigsetBytes = 8;

// Places the three descriptors at 0, 1, 2. First out of each other's way, then into place. Returns
// 0 or an errno.
int place_descriptors(std::array<int, 3>& fds) {
  for (int target = 0; target < 3; ++target) {
    int& fd = fds[static_cast<std::size_t>(target)];
    if (fd >= 3 || fd == target) continue;
    const long moved = raw_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    if (moved < 0) return static_cast<int>(-moved);
    fd = static_cast<int>(moved);
  }
  for (int target = 0; target < 3; ++target) {
    const int fd = fds[static_cast<std::size_t>(target)];
    const long result = fd == target ? raw_syscall(SYS_fcntl, fd, F_SETFD, 0)
                                     : raw_syscall(SYS_dup3, fd, target, 0);
    if (result < 0) return static_cast<int>(-result);
  }
  return 0;
}

// A limit that cannot be lowered stays: a worker may have more descriptors than asked for.
void set_descriptor_limit(std::uint64_t soft) {
  rlimit limit{};
  if (raw_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, raw_argument(&limit)) != 0) return;
  limit.rlim_cur = soft;
  raw_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, raw_argument(&limit), 0);
}

bool place_worker(Launch& launch) {
  if (const int error = launch.binding->apply_cpus(); error != 0) {
    launch.failed_step = Step::Binding;
    launch.error_number = error;
    return false;
  }
  launch.memory_error = launch.binding->apply_memory();
  if (launch.memory_error == 0 || !launch.binding->is_memory_strict()) return true;
  launch.failed_step = Step::MemoryBinding;
  launch.error_number = launch.memory_error.load();
  return false;
}

int execute_at(const char* path, ExecImage& image) {
  const long environment = raw_argument(image.environment());
  const long error =
      raw_syscall(SYS_execve, raw_argument(path), raw_argument(image.argv()), environment);
  if (error != -ENOEXEC) return static_cast<int>(-error);
  char** const argv = image.shell_argv();
  argv[1] = const_cast<char*>(path);
  return static_cast<int>(
      -raw_syscall(SYS_execve, raw_argument(argv[0]), raw_argument(argv), environment));
}

// Returns the errno of execvp. PATH is searched here and not by the parent: a directory of it may
// be on the file system that keeps us waiting.
int execute(Launch& launch) {
  int error_number = ENOENT;
  for (const char* const* path = launch.paths; *path != nullptr; ++path) {
    if (launch.is_lookup) {
      // Cheaper than an execve that fails. ENOSYS: before Linux 5.8; EPERM: an old sandbox.
      const long access =
          raw_syscall(SYS_faccessat2, AT_FDCWD, raw_argument(*path), X_OK, AT_EACCESS);
      if (access == -EACCES) error_number = EACCES;
      if (access < 0 && access != -ENOSYS && access != -EPERM) continue;
    }
    const int error = execute_at(*path, *launch.image);
    if (!launch.is_lookup) return error;
    if (error == EACCES)
      error_number = EACCES;  // a directory, say
    else if (error != ENOENT && error != ENOTDIR)
      return error;
  }
  return error_number;
}

// Handlers are removed before the mask is emptied, or one of drun's could run here. To return is to
// end by the exit system call (clone(2)): nothing of the parent's is flushed or destroyed.
int run_child(void* argument) {
  Launch& launch = *static_cast<Launch*>(argument);
  int error = 0;
  if (launch.network_fd >= 0)  // while it is in our table
    error = static_cast<int>(-raw_syscall(SYS_setns, launch.network_fd, CLONE_NEWNET));
  if (error == 0 && !launch.ours.empty()) error = leave_descriptors(launch.ours);
  if (error == 0 && launch.channel_fd >= 0)
    error = receive_descriptors(launch.channel_fd, launch.fds);
  if (error != 0) {
    launch.error_number = error;
    return 127;
  }
  if (launch.channel_fd >= 0) raw_syscall(SYS_write, launch.channel_fd, raw_argument("t"), 1);
  raw_syscall(SYS_setpgid, 0, 0);
  raw_syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (raw_syscall(SYS_getppid) != launch.parent) return 127;  // it died before prctl
  for (int signal = 1; signal <= 64; ++signal)
    if (launch.caught_signals >> (signal - 1) & 1)
      raw_syscall(SYS_rt_sigaction, signal, raw_argument(kZeros.data()), 0, kKernelSigsetBytes);
  if (launch.descriptor_limit) set_descriptor_limit(*launch.descriptor_limit);
  if (!place_worker(launch)) return 127;
  error = place_descriptors(launch.fds);
  if (error == 0) {
    raw_syscall(SYS_rt_sigprocmask, SIG_SETMASK, raw_argument(kZeros.data()), 0,
                kKernelSigsetBytes);
    error = execute(launch);
  }
  launch.error_number = error;
  return 127;
}

// Where execvp would look, in its order.
std::vector<std::string> places_of(const Command& command) {
  const std::string& name = command.argv[0];
  if (name.find('/') != name.npos) return {name};
  std::vector<std::string> places;
  std::string_view path = find_variable(command, "PATH").value_or("/bin:/usr/bin");
  while (!name.empty()) {
    const std::size_t colon = path.find(':');
    std::string place(path.substr(0, colon));
    // Without a slash execve looks in the working directory: what an empty element means.
    if (!place.empty()) place += "/";
    places.push_back(place + name);
    if (colon == path.npos) break;
    path.remove_prefix(colon + 1);
  }
  return places;
}

// Everything that a child reads, ready before it exists.
struct Prepared {
  explicit Prepared(const Command& command)
      : places(places_of(command)),
        image(command, places.empty() ? command.argv[0] : places.front()),
        binding(command.placement) {
    for (const std::string& place : places) paths.push_back(place.c_str());
    paths.push_back(nullptr);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  std::vector<std::string> places;
  std::vector<const char*> paths;
  ExecImage image;
  Binding binding;
};

class ChildStack {
 public:
  ChildStack()
      : base_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ChildStack(const ChildStack&) = delete;
  ChildStack& operator=(const ChildStack&) = delete;
  ~ChildStack() {
    if (is_mapped()) munmap(base_, kStackBytes);
  }
  bool is_mapped() const { return base_ != MAP_FAILED; }
  void* top() const { return static_cast<std::byte*>(base_) + kStackBytes; }
  Launch& launch() const { return *static_cast<Launch*>(base_); }

  void set_launch(const Command& command, Prepared& prepared, std::uint64_t caught) const {
    Launch& launch = *new (base_) Launch;
    launch.paths = prepared.paths.data();
    launch.is_lookup = command.argv[0].find('/') == std::string::npos;
    launch.image = &prepared.image;
    launch.fds = {command.stdin_fd, command.stdout_fd, command.stderr_fd};
    launch.network_fd = command.network_fd.value_or(-1);
    launch.descriptor_limit = command.descriptor_limit;
    launch.caught_signals = caught;
    launch.parent = getpid();
    launch.binding = &prepared.binding;
  }

 private:
  void* base_;
};

// All signals are blocked around it: drun's handlers must not run in the child. Returns the pid
// or -errno.
pid_t clone_child(const ChildStack& stack, int flags, int& pidfd) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = clone(run_child, stack.top(), flags | SIGCHLD, &stack.launch(), &pidfd, nullptr,
                          &stack.launch().tid);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return pid < 0 ? -error : pid;
}

// A sandbox or an emulator that does not have these flags; not a lack of memory or of pids.
bool is_unsupported(pid_t refused) {
  return refused == -EINVAL || refused == -ENOSYS || refused == -EPERM;
}

std::optional<Refusal> refusal_of(const Launch& launch) {
  if (launch.error_number == 0) return std::nullopt;
  if (launch.failed_step == Step::Starting) return NotStarted{launch.error_number};
  return NotBound{launch.error_number, launch.failed_step == Step::MemoryBinding};
}

void reap(pid_t pid) {
  siginfo_t ignored{};
  while (waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED) < 0 && errno == EINTR) {
  }
}

// As fork: with a copy of our memory and of our descriptors. Waits for the exec as clone does with
// CLONE_VFORK.
pid_t fork_child(const ChildStack& stack, int& pidfd) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -errno;
  const UniqueFd reading(ends[0]);
  UniqueFd writing(ends[1]);
  const pid_t pid = clone_child(stack, 0, pidfd);
  if (pid < 0) return pid;
  writing.reset();
  char unused = 0;
  while (read(reading.get(), &unused, 1) < 0 && errno == EINTR) {
  }
  pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd >= 0) return pid;
  const int error = errno;
  kill(pid, SIGKILL);
  reap(pid);
  return -error;
}

}  // namespace spawning

using namespace spawning;

std::variant<Spawned, Refusal> spawn(const Command& command) {
  assert(!command.argv.empty());
  const ChildStack stack;
  if (!stack.is_mapped()) return NotStarted{ENOMEM};
  Prepared prepared(command);
  stack.set_launch(command, prepared, caught_signals());
  int pidfd = -1;
  pid_t pid = clone_child(stack, kMemory | CLONE_VFORK | CLONE_PIDFD, pidfd);
  if (is_unsupported(pid)) pid = fork_child(stack, pidfd);
  if (pid < 0) return NotStarted{-pid};
  const Launch& launch = stack.launch();
  const std::optional<Refusal> refusal = refusal_of(launch);
  if (!refusal) return Spawned{.pid = pid, .pidfd = pidfd, .memory_error = launch.memory_error};
  reap(pid);
  close(pidfd);
  return *refusal;
}

class Spawner::Impl {
 public:
  explicit Impl(const ChildDescriptors& descriptors)
      : descriptors_(descriptors), slots_(descriptors.slot_count()) {}

  bool has_room() const {
    return slots_.empty() || std::any_of(slots_.begin(), slots_.end(),
                                         [](const Slot& slot) { return slot.is_free(); });
  }
  std::variant<Begun, Refusal> begin(const Command& command);

 private:
  class SharedStart;

  struct Slot {
    bool is_free() const { return !is_taken || (is_abandoned && stack->launch().tid == 0); }

    std::optional<ChildStack> stack;     // made at the first use
    std::unique_ptr<Prepared> prepared;  // of the child that has the stack
    bool is_taken = false;
    bool is_abandoned = false;  // nothing waits for its child any more
  };

  std::variant<Begun, Refusal> wait_for(const Command& command);

  const ChildDescriptors& descriptors_;
  std::vector<Slot> slots_;  // none: children are waited for, one after the other
  std::optional<std::uint64_t> caught_signals_;  // since the first start: by then all are set
};

// Two signs by the channel, whose other end only the child holds in the end: a byte when it has a
// separate table and its descriptors, so that the parent need not keep them, and the end of file
// when it has executed its program or died. The kernel closes what exec is to close, and what a
// dead process had open, after the child has left our memory. CLONE_CHILD_CLEARTID reports the
// latter too, but wakes only a thread that waits on a futex, not epoll; it is what frees the stack
// of a child that nothing waits for any more.
class Spawner::Impl::SharedStart final : public Start {
 public:
  SharedStart(Slot& slot, const ChildDescriptors& descriptors, std::size_t index, UniqueFd sign)
      : slot_(slot), descriptors_(descriptors), index_(index), sign_(std::move(sign)) {}
  SharedStart(const SharedStart&) = delete;
  SharedStart& operator=(const SharedStart&) = delete;
  ~SharedStart() override {
    clear_slot();
    if (has_left_) slot_.prepared.reset();
    slot_.is_taken = !has_left_;
    slot_.is_abandoned = !has_left_;
  }

  int sign() const override { return sign_.get(); }

  bool look() override {
    std::array<char, 16> bytes;
    while (!has_left_) {
      const ssize_t count = read(sign_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
      if (count <= 0) has_left_ = true;  // ECONNRESET: it died before it read the message
      clear_slot();
    }
    return true;
  }

  void ended() override {
    has_left_ = true;
    clear_slot();
  }

  std::optional<Refusal> refusal() const override { return refusal_of(slot_.stack->launch()); }
  int memory_error() const override { return slot_.stack->launch().memory_error; }

 private:
  void clear_slot() {
    if (!std::exchange(is_clear_, true)) descriptors_.clear(index_);
  }

  Slot& slot_;
  const ChildDescriptors& descriptors_;
  const std::size_t index_;
  const UniqueFd sign_;
  bool is_clear_ = false;
  bool has_left_ = false;
};

std::variant<Spawner::Begun, Refusal> Spawner::Impl::wait_for(const Command& command) {
  auto result = spawn(command);
  if (const auto* spawned = std::get_if<Spawned>(&result))
    return Begun{.spawned = *spawned, .start = nullptr};
  return std::get<Refusal>(result);
}

std::variant<Spawner::Begun, Refusal> Spawner::Impl::begin(const Command& command) {
  assert(!command.argv.empty() && has_room());
  if (slots_.empty()) return wait_for(command);
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Slot& each) { return each.is_free(); });
  const auto index = static_cast<std::size_t>(slot - slots_.begin());
  if (!slot->stack) slot->stack.emplace();
  if (!slot->stack->is_mapped()) return NotStarted{ENOMEM};
  std::optional<SocketPair> channel = socket_pair();
  if (!channel) return NotStarted{errno};
  const std::array<int, 3> fds{command.stdin_fd, command.stdout_fd, command.stderr_fd};
  if (const int error = send_descriptors(channel->ours.get(), "d", fds); error != 0)
    return NotStarted{error};
  if (!descriptors_.lay_out(index, channel->theirs.get())) return NotStarted{errno};
  slot->prepared = std::make_unique<Prepared>(command);
  if (!caught_signals_) caught_signals_ = caught_signals();
  slot->stack->set_launch(command, *slot->prepared, *caught_signals_);
  Launch& launch = slot->stack->launch();
  launch.channel_fd = descriptors_.laid_out(index);
  launch.ours = descriptors_.ours(index);
  int pidfd = -1;
  const int memory = kMemory | (kSharesMemory ? CLONE_CHILD_CLEARTID : 0);
  const pid_t pid = clone_child(*slot->stack, memory | CLONE_FILES | CLONE_PIDFD, pidfd);
  if (pid < 0) {
    descriptors_.clear(index);
    slot->prepared.reset();
    const bool is_first_of_all =
        std::none_of(slots_.begin(), slots_.end(), [](const Slot& each) { return each.is_taken; });
    if (!is_unsupported(pid) || !is_first_of_all) return NotStarted{-pid};
    slots_.clear();
    return wait_for(command);
  }
  slot->is_taken = true;
  slot->is_abandoned = false;
  return Begun{
      .spawned = {.pid = pid, .pidfd = pidfd},
      .start = std::make_unique<SharedStart>(*slot, descriptors_, index, std::move(channel->ours))};
}

Spawner::Spawner(const ChildDescriptors& descriptors)
    : impl_(std::make_unique<Impl>(descriptors)) {}

Spawner::~Spawner() = default;

bool Spawner::has_room() const { return impl_->has_room(); }

std::variant<Spawner::Begun, Refusal> Spawner::begin(const Command& command) {
  return impl_->begin(command);
}

ExitStatus decode(const ChildEnd& end) {
  switch (end.how) {
    case CLD_EXITED:
      return Exited{end.status};
    case CLD_KILLED:
      return Killed{.signal = end.status, .core_dumped = false};
    case CLD_DUMPED:
      return Killed{.signal = end.status, .core_dumped = true};
    default:
      std::abort();
  }
}

}  // namespace drun::agent
