// edge. Starts one program: the only place that forks workers.
//
// The new process has a process group of its own, an empty signal mask, and SIGKILL as its
// parent-death signal. Dispositions: what the user had ignored when drun started stays ignored
// (nohup), but for SIGPIPE and SIGCHLD, which are the default again.
//
// Cost:    one clone() sharing memory, as posix_spawn; the caller's thread waits for the exec.
// Thread:  any, but the parent-death signal fires when that *thread* ends (prctl(2)): spawn from
//          one that lives as long as the agent.
// Place:   CPUs and memory of the command's placement, from the program's first instruction on.
// Errors:  NotStarted with execve's errno, or NotBound, synchronously; nothing is left behind then.
//          Memory that is only to be preferred and cannot be is no error: Spawned says so.
#pragma once

#include <memory>
#include <variant>

#include "agent/command.h"
#include "rendezvous/failure.h"

namespace drun::agent {

class ChildDescriptors;

struct Spawned {
  int pid = 0;
  int pidfd = -1;        // close-on-exec; the caller's to close
  int memory_error = 0;  // errno of what kept its memory from being placed; 0: nothing did
};

// The kernel refused the worker's place, so nothing was executed.
struct NotBound {
  int error_number = 0;
  bool is_memory = false;  // else: its CPUs
};

// Descriptors above 2 that are not close-on-exec are inherited. The lookup is execvp's: PATH is the
// worker's own, a missing PATH is "/bin:/usr/bin", an empty element is the working directory,
// EACCES wins over ENOENT. A text file without #! is given to /bin/sh. Requires a non-empty argv.
std::variant<Spawned, NotStarted, NotBound> spawn(const Command& command);

// For many that are started one right after the other: what is the same for all is found out once
// (where the program is, which signals have handlers of ours).
class Spawner {
 public:
  // `descriptors` says which of ours a child gets, and outlives it; null: those that are not
  // close-on-exec.
  explicit Spawner(const ChildDescriptors* descriptors);
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  ~Spawner();

  std::variant<Spawned, NotStarted, NotBound> spawn(const Command& command);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace drun::agent
