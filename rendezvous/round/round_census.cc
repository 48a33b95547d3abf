// How the job is doing, for `drun status` on any of its nodes.
#include <utility>

#include "rendezvous/round/census_of.h"
#include "rendezvous/round/round_turn.h"

namespace drun::rendezvous {

void RoundTurn::census_asked(Peer peer, std::uint64_t question) {
  CensusTaking& census = state_.census;
  if (!census.is_open && census.last && now_ < census.last_until)
    return answer({{peer, question}}, census.last);
  if (census.askers.size() >= kMostAskers)
    return send(peer, CensusTold{question, {.note = "too many ask at the same time"}});
  census.askers.push_back({peer, question});
  if (!census.is_open) take_census();
}

// Who has heard the end of the job answers nothing any more.
void RoundTurn::take_census() {
  CensusTaking& census = state_.census;
  census.is_open = true;
  ++census.number;
  census.answer_by = now_ + kCensusLimit;
  census.answers.clear();
  census.missing.clear();
  if (state_.phase == RoundPhase::Ending || state_.phase == RoundPhase::Over) return;
  std::vector<Peer> peers = census_peers(state_);
  census.missing.insert(peers.begin(), peers.end());
  actions_.emplace_back(SendAll{std::move(peers), TellNode{census.number}});
}

void RoundTurn::node_told(Peer peer, const NodeTold& told) {
  CensusTaking& census = state_.census;
  if (!census.is_open || told.census != census.number || census.missing.erase(peer) == 0) return;
  census.answers.emplace(peer, told.summary);
}

// After each event: it may have been the last that was waited for.
void RoundTurn::conclude_census() {
  CensusTaking& census = state_.census;
  const bool is_complete = census.missing.empty() || now_ >= census.answer_by;
  if (!census.is_open || !is_complete) return;
  census.last = std::make_shared<const CoordinatorMessage>(CensusTold{0, census_of(state_, now_)});
  census.last_until = now_ + kCensusFresh;
  census.is_open = false;
  answer(std::exchange(census.askers, {}), census.last);
}

}  // namespace drun::rendezvous
