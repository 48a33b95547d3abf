// core. Delays the actions of an elected coordinator's state machine (round.h) that start a round
// until every later leader is sure to know the number of that round. No two leaders therefore use
// the same number.
//
//   election won  --> begin   returns a new state machine; drops actions held for an earlier lead
//   ClearStore of a world with an unrecorded number: this action and all later ones are held
//   round known   --> know    returns the held actions, in order
//   election lost --> lose    drops them
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

  // Do: apply it now. Hold: the fence keeps it. Ask: the fence keeps it, and the caller must have
  // the round recorded.
  enum class Verdict { Do, Hold, Ask };
  Verdict judge(const RoundState& state, const RoundAction& action);
  // Only the recorded number counts, even if members have reported later rounds since.
  std::vector<RoundAction> know(int rounds);

  // Kept: the outcome is being sent, which needs no lead because no round follows. Over: no member
  // is left that could learn of an unrecorded round. Lost: this agent no longer coordinates.
  enum class Loss { Kept, Over, Lost };
  Loss lose(const RoundState& state);

 private:
  int known_rounds_ = 0;
  int asked_rounds_ = 0;           // up to the last world that is held
  std::optional<int> led_rounds_;  // when it last lost the lead
  std::vector<RoundAction> held_;
};

// Whether the job is ending, so that the coordinator still acts without the lead.
bool tells_the_end(const RoundState& state);

}  // namespace drun::rendezvous
