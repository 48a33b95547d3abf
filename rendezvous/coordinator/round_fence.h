// core. What being elected adds to a coordinator's machine (rendezvous/coordinator/round.h): how a
// lead begins, what it does not do before every later leader is sure to know of it, what is left
// when it is lost.
//
//   lead --> begin          the machine of this lead; what was held of one before is forgotten
//   ClearStore of a world whose number is not known yet: that and all after it are held
//   round known --> know    what was held, in order
//   lead lost --> lose      nothing of it is done any more
//
// Owner:   a value, beside the RoundState that it is asked about (server.cc, tests/sim).
// Thread:  any, one at a time.
// Errors:  none.  Never throws.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/coordinator/round.h"
#include "rendezvous/job/job_record.h"

namespace drun::rendezvous {

class RoundFence {
 public:
  RoundState begin(RoundSpec spec, std::uint64_t term, const RoundRecord& before, Time now);

  // Do: now. Hold: it is held back. Ask: also held back, and the round must be recorded first.
  enum class Verdict { Do, Hold, Ask };
  Verdict judge(const RoundState& state, const RoundAction& action);
  // The recorded number counts, even if members have reported later rounds since.
  std::vector<RoundAction> know(int rounds);

  // Kept: the end of the job is being sent, which needs no lead, since nothing begins after it.
  // Over: no member is left that could hear of a round that was never recorded. Lost: the lead is.
  enum class Loss { Kept, Over, Lost };
  Loss lose(const RoundState& state);

 private:
  int known_rounds_ = 0;
  int asked_rounds_ = 0;           // of the last world that is held
  std::optional<int> led_rounds_;  // when it last lost the lead
  std::vector<RoundAction> held_;
};

// Whether it still acts where it does not lead any more.
bool tells_the_end(const RoundState& state);

}  // namespace drun::rendezvous
