// What the next coordinator is to know of agents that were left out or lost, and what this one
// hears of them from its members.
#include <utility>

#include "rendezvous/round/assembly.h"
#include "rendezvous/round/census_of.h"
#include "rendezvous/round/elastic.h"
#include "rendezvous/round/inheritance.h"
#include "rendezvous/round/round_turn.h"

namespace drun::rendezvous {

using Presence = RoundNode::Presence;

namespace {

// A Remember goes to all members. When many nodes are lost together, their connections end one by
// one: the first loss is sent at once, all others of this time in one message.
constexpr Milliseconds kRecordInterval{100};

}  // namespace

// Where nobody can take over nobody needs to remember.
void RoundTurn::record(const AgentId& id) {
  if (state_.spec.term == 0) return;
  const NodeRecord changed = record_of(state_, id);
  note_record(state_.records, changed);
  note_record(state_.untold, changed);
}

void RoundTurn::send_records() {
  if (state_.untold.empty()) return;
  actions_.emplace_back(SendAll{census_peers(state_), Remember{std::exchange(state_.untold, {})}});
  state_.tell_from = now_ + kRecordInterval;
}

// After each event: one message for all that it has changed.
void RoundTurn::conclude_records() {
  const bool is_over = state_.phase == RoundPhase::Ending || state_.phase == RoundPhase::Over;
  if (now_ >= state_.tell_from && !is_over) send_records();
}

// It is used up, whoever begins the world that it is for. Spares tell nobody of a past.
void RoundTurn::tell_restarts() {
  if (state_.spec.term != 0) send_all(Remember{{}, static_cast<int>(state_.restarts.size())});
}

void RoundTurn::tell_records(Peer peer) {
  if (state_.spec.term != 0 && !state_.records.empty()) send(peer, Remember{state_.records});
}

// Whoever was let in before its members told that it had been left out goes again.
void RoundTurn::hear_of_past(const Past& past) {
  for (const AgentId& id : inherit(state_, past, now_)) turn_out(id);
}

void RoundTurn::turn_out(const AgentId& id) {
  const auto known = state_.known.find(id);
  if (known == state_.known.end() || !known->second.peer) return;
  const Peer peer = *known->second.peer;
  const Error error = with_context(*exclusion_objection(state_.exclusions, id),
                                   state_.spec.endpoint + " sends it away");
  const auto seat = state_.node_of.find(peer);
  const bool is_waiting = state_.line.contains(peer);
  if (seat == state_.node_of.end() && !is_waiting) return;
  log(LogLevel::Warning, id.first + ": " + error.message);
  send(peer, Finish{outcome_of(state_, NotRun{error}, now_)});
  // The coordinator's own: its agent gives up the lead with it, and the others elect another.
  if (is_waiting ? state_.line.at(peer).hello.is_host : node_at(seat->second).hello.is_host) return;
  is_waiting ? drop_waiter(peer, "it was left out of this job")
             : drop_member(seat->second, "it was left out of this job");
}

}  // namespace drun::rendezvous
