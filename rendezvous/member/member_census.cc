#include "rendezvous/member/member_census.h"

#include "rendezvous/member/member_turn.h"

namespace drun::rendezvous {

using Phase = MemberPhase;

void MemberTurn::handle(const OwnCensusQuestion& own) {
  if (is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}))
    return say(CensusAsked{own.question});
  if (state_.phase == Phase::Ended) return;
  const bool is_ending = is_in({Phase::Leaving, Phase::Ending});
  actions_.emplace_back(CensusHeard{
      own.question,
      {.note = is_ending ? "this node leaves the job" : "this node is not in touch with its job"}});
}

void MemberTurn::handle(const OwnSummary& own) {
  if (is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped,
             Phase::Leaving}))
    say(NodeTold{own.census, own.summary});
}

void MemberTurn::hear(const TellNode& tell) {
  if (state_.phase == Phase::Greeting) return broken("a question before the welcome");
  actions_.emplace_back(SummariseNode{tell.census});
}

void MemberTurn::hear(const CensusTold& told) {
  actions_.emplace_back(CensusHeard{told.question, told.census});
}

}  // namespace drun::rendezvous
