// core. One turn of the election's machine: the state, the time, and the actions as they come. Only
// election.cc (a voter's half) and election_lead.cc (a candidate's and leader's) include it.
// Owner:   lives for one step.   Thread: any.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/election/election.h"

namespace drun::rendezvous {

// When the lead ends unless it is renewed; in the past: it has ended. Leading only.
Time lead_until(const ElectionState& state, Time now);
// Until its turn comes, if nobody before it takes it.
Time own_turn(const ElectionState& state);
int majority_of(const ElectionState& state);

class ElectionTurn {
 public:
  ElectionTurn(ElectionState& state, Time now) : state_(state), now_(now) {}

  void handle(const ElectionStart&);
  void handle(const BallotCame& came);
  void handle(const VoteCame& came);
  void handle(const SeatLinked& linked);
  void handle(const SeatFailed& failed);
  void handle(const RoundWanted& wanted);
  void handle(const Resign&);
  void handle(const ElectionTick&) {}

  // After the event, whatever it was.
  void settle();

  std::vector<ElectionAction> take_actions() { return std::move(actions_); }

 private:
  // election.cc
  bool is_voted_away() const { return state_.voted_until && *state_.voted_until > now_; }
  bool would_vote_for(const Ballot& ballot) const;
  bool vote_for(const Ballot& ballot);
  void take_back(const Ballot& ballot);
  void follow(const Ballot& ballot);
  void become_vacant();
  Vote vote(const Ballot& ballot, bool is_granted) const;
  std::string objection(const Ballot& ballot) const;

  // election_lead.cc
  void take_vote(int index, const Vote& vote);
  void ask_who_is_due();
  void ask(int seat, BallotKind kind);
  void ask_all(BallotKind kind);
  void claim_if_it_can();
  void win_if_it_has();
  void give_claim_up();
  void check_lead();
  void check_rounds();
  void check_retreat();
  bool remembers() const { return now_ >= state_.remembers_from; }

  template <typename Each>
  void for_others(Each each) {
    for (int seat = 0; seat < state_.spec.seat_count; ++seat) {
      if (seat != state_.spec.seat) each(seat, state_.seats[static_cast<std::size_t>(seat)]);
    }
  }

  ElectionState& state_;
  const Time now_;
  std::vector<ElectionAction> actions_;
};

}  // namespace drun::rendezvous
