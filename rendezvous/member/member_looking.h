// core. What a member hears from its agent, and asks of it, about what workers do (`drun stacks`,
// --hang-timeout). Part of the member's machine (member.h).
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/control_message.h"

namespace drun::rendezvous {

// Events.
// Somebody on this node wants to know what all workers do: Told comes back, unless the coordinator
// is lost meanwhile.
struct OwnQuestion {
  std::uint64_t question = 0;
};
// The answer to LookAtWorkers.
struct OwnEvidence {
  std::uint64_t look = 0;
  Evidence evidence;
};
// Brief failures with status Hung, of any number.
struct OwnSuspicion {
  int round = 0;
  Milliseconds settle{0};
  std::vector<Failure> suspects{};
};

// Actions.
struct LookAtWorkers {
  std::uint64_t look = 0;
};
struct Told {
  std::uint64_t question = 0;
  Evidence evidence;
};
struct ShowHang {
  HangFound found;
};

}  // namespace drun::rendezvous
