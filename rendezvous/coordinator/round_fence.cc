#include "rendezvous/coordinator/round_fence.h"

#include <utility>

#include "rendezvous/coordinator/takeover.h"

namespace drun::rendezvous {

RoundState RoundFence::begin(RoundSpec spec, std::uint64_t term, const RoundRecord& before,
                             Time now) {
  spec.term = term;
  spec.rounds = known_rounds_ = before.rounds;
  spec.is_back = led_rounds_ == before.rounds;
  held_.clear();
  RoundState state = open_round(std::move(spec), now);
  inherit(state, before, now);
  return state;
}

// Sends nothing of a new world before its number is recorded (election.h).
RoundFence::Verdict RoundFence::judge(const RoundState& state, const RoundAction& action) {
  const bool is_unknown =
      std::holds_alternative<ClearStore>(action) && known_rounds_ < state.next_round;
  // A LivenessCheck has its own time limit, and does not depend on a world.
  const auto* const message = std::get_if<SendTo>(&action);
  const bool is_check =
      message != nullptr && std::holds_alternative<LivenessCheck>(message->message);
  if (is_check || (!is_unknown && held_.empty())) return Verdict::Do;
  if (is_unknown) asked_rounds_ = state.next_round;
  held_.push_back(action);
  return is_unknown ? Verdict::Ask : Verdict::Hold;
}

std::vector<RoundAction> RoundFence::know(int rounds) {
  known_rounds_ = rounds;
  if (rounds < asked_rounds_) return {};
  return std::exchange(held_, {});
}

RoundFence::Loss RoundFence::lose(const RoundState& state) {
  if (tells_the_end(state) && held_.empty()) return Loss::Kept;
  held_.clear();
  if (state.phase == RoundPhase::Over) return Loss::Over;
  led_rounds_ = known_rounds_;
  return Loss::Lost;
}

bool tells_the_end(const RoundState& state) {
  return state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over;
}

}  // namespace drun::rendezvous
