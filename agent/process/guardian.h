// edge. The guardian: the process the user sees, which lets nothing of the job outlive its agent.
//
// Shape:   guardian (the caller's pid)  --  agent (in a new session)  --  workers ...
//          Both are child subreapers, and each is notified at once when the other dies, even when
//          it is stopped: guardian gone, the agent kills every descendant and exits; agent gone,
//          the guardian does. So after SIGKILL of any one of them nothing of the job is left, new
//          sessions, double forks and stopped processes included. No privileges needed.
// Signals: every signal that can be caught is forwarded to the agent once, but what was ignored at
//          the start stays ignored; SIGTSTP (Ctrl-Z) stops the guardian alone: the shell is back
//          and the job continues, `fg` and `bg` work as usual.
// Thread:  call it while there is one thread only.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::agent {

// Forks. Runs `agent` in the child and returns its value *there*: whatever follows the call is the
// agent's. The guardian never returns: it ends (by _exit) with the agent's exit code, or 128 + n
// when signal n ended the agent. Errors: System, when there can be no agent; nothing was forked.
Result<int> run_guarded(const std::function<int()>& agent);

// In the agent: if it is killed, the guardian removes `directory` with its contents. If the
// guardian is killed, the agent does so before it ends. An absolute path of less than 256 bytes; at
// most four paths are kept. Has no effect without a guardian.
void remove_if_killed(const std::string& directory);

// In the agent, before it exits: what it leaves running (--leftovers=keep) outlives it. Has no
// effect if the agent is killed, or without a guardian.
void keep_leftovers_at_exit();

// In the agent: the guardian neither kills nor reports this process, which SIGKILL did not end and
// which the agent has reported. At most 16. Has no effect if the agent is killed.
void expect_unkillable(int pid);

}  // namespace drun::agent
