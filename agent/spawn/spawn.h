// edge. Starts programs: the only place that forks workers.
//
// The new process leads a new process group and has an empty signal mask and SIGKILL as its
// parent-death signal. Dispositions: what the user had ignored when drun started stays ignored
// (nohup), except SIGPIPE and SIGCHLD, which are the default again.
//
// Two ways: spawn() waits until the program is executed or has been refused. Spawner::begin()
// returns once the child exists. An exec from a cold shared file system takes seconds; the child
// waits for it, not the caller. Until then the child shares the caller's memory, uses a separate
// stack, and makes raw system calls only (raw_syscall.h).
//
// Thread:  any, but the parent-death signal fires when that *thread* ends (prctl(2)): spawn from
//          one that lives as long as the agent.
// Place:   CPUs and memory of the command's placement, from the program's first instruction on.
// Errors:  NotStarted with execve's errno, or NotBound; no process is left behind then. A failure
//          to set a memory preference is not an error; memory_error reports it.
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "agent/spawn/command.h"
#include "rendezvous/job/outcome.h"

namespace drun::agent {

class ChildDescriptors;

struct Spawned {
  int pid = 0;
  int pidfd = -1;        // close-on-exec; the caller's to close
  int memory_error = 0;  // errno of setting the memory policy; 0: none
};

// Binding to the requested CPUs or memory nodes failed; the program was not executed.
struct NotBound {
  int error_number = 0;
  bool is_memory = false;  // false: the CPUs
};

using Refusal = std::variant<NotStarted, NotBound>;
inline int error_number_of(const Refusal& refusal) {
  return std::visit([](const auto& reason) { return reason.error_number; }, refusal);
}

// Descriptors above 2 that are not close-on-exec are inherited. The lookup is execvp's: PATH is the
// worker's own, a missing PATH is "/bin:/usr/bin", an empty element is the working directory,
// EACCES wins over ENOENT. A text file without #! is given to /bin/sh. Requires a non-empty argv.
std::variant<Spawned, Refusal> spawn(const Command& command);

// A child between clone and exec. Destroying it leaves the child alone: its stack is not used again
// before the kernel reports that the child has left our memory.
class Start {
 public:
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  virtual ~Start() = default;

  // Call when the process is being watched. Only preloaded workers wait for it (WarmStarter).
  virtual void go() {}
  // A descriptor that is readable when look() should be called. Do not close it.
  virtual int sign() const = 0;
  // True once the child has executed its program or has died.
  virtual bool look() = 0;
  // Call when the child has been reaped; frees its resources.
  virtual void ended() = 0;
  // Why its program was not executed; absent: it was, or the child was killed before. Known once
  // look() is true or the child has been reaped.
  virtual std::optional<Refusal> refusal() const = 0;
  // Like Spawned's; known at the same time.
  virtual int memory_error() const = 0;

 protected:
  Start() = default;
};

class Spawner {
 public:
  struct Begun {
    Spawned spawned;
    std::unique_ptr<Start> start;  // null: the program has been executed
  };

  // `descriptors` must outlive the Spawner. If they are not usable, or the kernel or a sandbox
  // rejects a child that shares our memory and runs concurrently, begin() waits like spawn().
  explicit Spawner(const ChildDescriptors& descriptors);
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  ~Spawner();  // destroy all Starts before

  // False if begin() must not be called until a pending start is done and destroyed.
  bool has_room() const;

  // The command and its borrowed data, except descriptors, must stay valid until the start is done.
  // Requires has_room(). If the program cannot be found, the start may report it later.
  std::variant<Begun, Refusal> begin(const Command& command);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// --- The end of a child, as waitid(2) reports it: si_code is CLD_EXITED, CLD_KILLED or CLD_DUMPED;
// si_status is the exit code or the signal

// Fields of siginfo_t, under other names because the system's are macros.
struct ChildEnd {
  int how = 0;     // si_code
  int status = 0;  // si_status
};

// Asserts that `how` is one of the three codes, because drun only waits for ended children.
ExitStatus decode(const ChildEnd& end);

}  // namespace drun::agent
