#include "rendezvous/member/member_looking.h"

#include <utility>

#include "rendezvous/member/member_turn.h"
#include "rendezvous/round/suspects.h"

namespace drun::rendezvous {

using Phase = MemberPhase;

void MemberTurn::handle(const OwnQuestion& own) {
  if (is_in({Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}))
    return say(StacksAsked{own.question});
  if (state_.phase == Phase::Ended) return;
  const bool is_new = !state_.world.has_value();
  actions_.emplace_back(
      Told{own.question,
           {.notes = {is_new ? "no workers run yet" : "this node is not in touch with its job"}}});
}

void MemberTurn::handle(const OwnEvidence& own) {
  if (is_in({Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}))
    say(EvidenceGiven{own.look, own.evidence});
}

void MemberTurn::handle(const OwnSuspicion& own) {
  if (!is_round(own.round) || state_.phase != Phase::Running) return;
  for (std::vector<SuspectGroup>& groups : suspect_messages(own.suspects))
    say(HangSuspected{own.round, own.settle, std::move(groups)});
}

void MemberTurn::hear(const TellStacks& tell) {
  if (!state_.world) return;  // a look at a world that it never got
  actions_.emplace_back(LookAtWorkers{tell.look});
}

void MemberTurn::hear(const StacksTold& told) {
  actions_.emplace_back(Told{told.question, told.evidence});
}

void MemberTurn::hear(const HangFound& found) {
  if (is_round(found.round) && is_in({Phase::Running, Phase::Done, Phase::Stopping}))
    actions_.emplace_back(ShowHang{found});
}

}  // namespace drun::rendezvous
