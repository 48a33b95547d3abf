// edge. Starts one program: the only place that forks workers.
//
// The new process has a process group of its own, an empty signal mask, and SIGKILL as its
// parent-death signal. Dispositions: what the user had ignored when drun started stays ignored
// (nohup), but for SIGPIPE and SIGCHLD, which are the default again. Descriptors above 2 that are
// not close-on-exec are inherited.
//
// Cost:    one clone() sharing memory, as posix_spawn; the caller's thread waits for the exec.
// Thread:  any, but the parent-death signal fires when that *thread* ends (prctl(2)): spawn from
//          one that lives as long as the agent.
// Errors:  NotStarted with execve's errno, synchronously; nothing is left behind then.
#pragma once

#include <variant>

#include "agent/command.h"
#include "rendezvous/failure.h"

namespace drun::agent {

struct Spawned {
  int pid = 0;
  int pidfd = -1;  // close-on-exec; the caller's to close
};

// The lookup is execvp's: PATH is the worker's own, a missing PATH is "/bin:/usr/bin", an empty
// element is the working directory, EACCES wins over ENOENT. A text file without #! is given to
// /bin/sh. Requires a non-empty argv.
std::variant<Spawned, NotStarted> spawn(const Command& command);

}  // namespace drun::agent
