// A voter's half: what others ask.
#include "rendezvous/election/election.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/election/election_turn.h"
#include "rendezvous/overloaded.h"

namespace drun::rendezvous {

using Phase = ElectionPhase;

void ElectionTurn::handle(const ElectionStart&) {
  state_.remembers_from = now_ + state_.spec.lease;
  state_.turn = now_;
  for (SeatView& seat : state_.seats) seat.next_ask = now_;
}

// Why the sender takes no part in this election; empty: it does.
std::string ElectionTurn::objection(const Ballot& ballot) const {
  const ElectionSpec& spec = state_.spec;
  if (ballot.run_id != spec.run_id)
    return "it belongs to run id \"" + ballot.run_id + "\", but this is run id \"" + spec.run_id +
           "\"; give the same --rdzv-id on all nodes, or another job another port";
  if (ballot.seats != spec.seats)
    return "it was started with --rdzv-endpoint=" + ballot.seats + ", but this agent with " +
           spec.seats + "; write the same list on all nodes";
  if (ballot.instance == spec.instance)
    return "that is this agent itself: two of the endpoints " + spec.seats + " are one";
  if (ballot.seat == spec.seat || ballot.seat < 0 || ballot.seat >= spec.seat_count)
    return "another agent holds that endpoint of " + spec.seats +
           " already; is a name in it that of several hosts?";
  return "";
}

void ElectionTurn::handle(const BallotCame& came) {
  const Ballot& ballot = came.ballot;
  if (std::string reason = objection(ballot); !reason.empty()) {
    actions_.emplace_back(RefuseBallot{came.caller, Error{ErrorCode::Refused, std::move(reason)}});
    return;
  }
  state_.term = std::max(state_.term, ballot.term);
  state_.rounds = std::max(state_.rounds, ballot.rounds);
  SeatView& sender = state_.seats[static_cast<std::size_t>(ballot.seat)];
  // Who has just come is asked at once, not when it is its turn to be looked at again.
  if (!sender.is_reached) sender.next_ask = now_;
  sender.heard_at = now_;
  sender.is_reached = true;
  bool is_granted = false;
  switch (ballot.kind) {
    case BallotKind::Look:
      is_granted = would_vote_for(ballot);
      break;
    case BallotKind::Lead:
      if (state_.phase == Phase::Claiming) give_claim_up();
      is_granted = vote_for(ballot);
      follow(ballot);
      break;
    case BallotKind::Claim:
      is_granted = vote_for(ballot);
      break;
    case BallotKind::Release:
      take_back(ballot);
      break;
  }
  actions_.emplace_back(AnswerBallot{came.caller, vote(ballot, is_granted)});
}

Vote ElectionTurn::vote(const Ballot& ballot, bool is_granted) const {
  using std::chrono::milliseconds;
  Vote vote{.number = ballot.number,
            .instance = state_.spec.instance,
            .is_granted = is_granted,
            .is_fresh = !remembers(),
            .term = state_.term,
            .rounds = state_.rounds};
  if (is_granted) return vote;
  if (state_.phase == Phase::Leading || state_.phase == Phase::Claiming)
    vote.free_in = state_.spec.lease;
  else if (is_voted_away())
    vote.free_in = std::chrono::ceil<milliseconds>(*state_.voted_until - now_);
  return vote;
}

bool ElectionTurn::would_vote_for(const Ballot& ballot) const {
  if (state_.phase == Phase::Leading || state_.phase == Phase::Claiming) return false;
  return !is_voted_away() || state_.voted_instance == ballot.instance;
}

// An old term's ballot may have been long on its way: terms of votes only grow.
bool ElectionTurn::vote_for(const Ballot& ballot) {
  const bool is_same = ballot.instance == state_.voted_instance;
  const bool is_late =
      ballot.term < state_.voted_term || (ballot.term == state_.voted_term && !is_same);
  if (is_late || !would_vote_for(ballot)) return false;
  state_.voted_term = ballot.term;
  state_.voted_instance = ballot.instance;
  state_.voted_until = now_ + state_.spec.lease;
  return true;
}

void ElectionTurn::take_back(const Ballot& ballot) {
  if (ballot.instance == state_.voted_instance && ballot.term >= state_.voted_term)
    state_.voted_until.reset();
  if (state_.phase == Phase::Following && state_.leader == ballot.seat &&
      ballot.term >= state_.leader_term)
    become_vacant();
}

void ElectionTurn::follow(const Ballot& ballot) {
  if (state_.phase == Phase::Leading) return;
  const bool is_known = state_.phase == Phase::Following;
  if (is_known && ballot.term < state_.leader_term) return;
  const bool is_same =
      is_known && state_.leader == ballot.seat && state_.leader_term == ballot.term;
  state_.phase = Phase::Following;
  state_.leader = ballot.seat;
  state_.leader_term = ballot.term;
  state_.leader_until = now_ + state_.spec.lease;
  if (!is_same) actions_.emplace_back(Following{ballot.seat, ballot.term});
}

void ElectionTurn::become_vacant() {
  state_.phase = Phase::Vacant;
  state_.turn = now_;
  state_.able_since.reset();
  for_others([this](int, SeatView& seat) {
    seat.is_reached = false;
    seat.would_vote.reset();
    seat.granted_at.reset();
    seat.next_ask = now_;
  });
  actions_.emplace_back(Vacant{});
}

void ElectionTurn::settle() {
  if (state_.phase == Phase::Following && now_ >= state_.leader_until) become_vacant();
  if (state_.phase == Phase::Leading) check_lead();
  if (state_.phase == Phase::Claiming) win_if_it_has();
  if (state_.phase == Phase::Vacant) claim_if_it_can();
  ask_who_is_due();
  if (state_.phase == Phase::Leading) check_rounds();
  if (state_.is_retired) check_retreat();
  state_.last_turn = now_;
}

ElectionState open_election(ElectionSpec spec) {
  assert(spec.seat_count > 1 && spec.seat >= 0 && spec.seat < spec.seat_count);
  ElectionState state;
  state.seats.resize(static_cast<std::size_t>(spec.seat_count));
  state.spec = std::move(spec);
  return state;
}

std::vector<ElectionAction> step(ElectionState& state, const ElectionEvent& event, Time now) {
  ElectionTurn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  turn.settle();
  return turn.take_actions();
}

}  // namespace drun::rendezvous
