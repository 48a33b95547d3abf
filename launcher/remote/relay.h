// edge. The relay: a process on the first host of a branch that logs in to the hosts behind it for
// a starter elsewhere (agent_protocol.h).
//
// Flow:    what comes from the sessions goes to the channel as Relayed frames; while the channel is
//          not read, the sessions are not.
// End:     when its standard input ends, or nothing has come for agent::kLifelineSilence: then the
//          sessions' inputs end too, and after kEndGrace they are killed. Killed itself, it leaves
//          nothing behind (agent/process/guardian.h).
#pragma once

#include <string>

namespace drun::hosts {

struct RelayChannel {
  int fd = -1;  // close-on-exec
  std::string nonce{};
};

// `pending`: bytes of standard input that were read after the relay's first line. Gives the exit
// code. Forks: call it while there is one thread only, and return what it gives.
int run_relay(const std::string& pending, const RelayChannel& channel);

}  // namespace drun::hosts
