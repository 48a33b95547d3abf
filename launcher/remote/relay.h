// edge. The relay: a process on the first host of a branch that logs in to the hosts behind it on
// behalf of the launcher (agent_protocol.h).
//
// Output of the sessions goes to the channel as Relayed frames; while the channel is blocked, the
// sessions are not read. When standard input ends, or is silent for agent::kLifelineSilence, the
// relay closes the sessions' inputs, and kills them after kEndGrace. If the relay is killed, it
// leaves no processes behind (agent/process/guardian.h).
#pragma once

#include <string>

namespace drun::hosts {

struct RelayChannel {
  int fd = -1;  // close-on-exec
  std::string nonce{};
};

// `pending`: bytes of standard input that were read beyond the relay's first line. Returns the exit
// code. Forks: call it before other threads exist, and return its result from main.
int run_relay(const std::string& pending, const RelayChannel& channel);

}  // namespace drun::hosts
