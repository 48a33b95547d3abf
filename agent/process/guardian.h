// edge. The guardian: the process that the user started. It ensures that no process of the job
// outlives the agent.
//
// Shape:   guardian (the caller's pid)  --  agent (in a new session)  --  workers ...
//          Both are child subreapers, and each is notified at once if the other dies, even while it
//          is stopped. The survivor kills all descendants and exits. After SIGKILL of either one,
//          no process of the job is left, including new sessions, double forks and stopped
//          processes. Needs no privileges.
// Signals: every signal that can be caught is forwarded to the agent once; signals ignored at the
//          start stay ignored. SIGTSTP (Ctrl-Z) stops only the guardian: the shell returns, the job
//          continues, and `fg` and `bg` work as usual.
// Files:   after SIGKILL of either one, the survivor removes the agent's scratch directories
//          (scratch.h). A guardian whose job runs for longer than a moment removes those of this
//          user that no process owns any more.
// Thread:  call it while the process has one thread.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::agent {

// Forks, runs `agent` in the child, and returns its value there: code after the call runs in the
// agent only. The guardian never returns: it calls _exit with the agent's exit code, or 128 + n if
// signal n ended the agent. Errors: System if the fork failed, or if the process can open too few
// files for any job.
Result<int> run_guarded(const std::function<int()>& agent);

// In the agent: if the agent is killed, the guardian removes `directory` with its contents; if the
// guardian is killed, the agent does so before it ends. Requires an absolute path of less than 256
// bytes; at most eight are kept. Has no effect without a guardian.
void remove_if_killed(const std::string& directory);

// In the agent, before it exits: what it leaves running (--leftovers=keep) outlives it. Has no
// effect if the agent is killed, or without a guardian.
void keep_leftovers_at_exit();

// In the agent: the guardian neither kills nor reports this process, which SIGKILL did not end and
// which the agent has reported. At most 16. Has no effect if the agent is killed.
void expect_unkillable(int pid);

}  // namespace drun::agent
