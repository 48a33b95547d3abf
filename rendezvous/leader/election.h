// core. Elects the seat that coordinates the job: the leader. Each listed seat runs one instance of
// this state machine; see docs/internals/election.md.
//
//              another leads                    its vote expires, or the leader resigns
//   Vacant --------------------> Following ------------------------------------+
//    |  ^                            ^                                         |
//    |  +----------------------------|-----------------------------------------+
//    |  | too few votes              | another leads                           |
//    v  |                            |                                         |
//   Claiming ------------------------+                                         |
//    |     enough votes                    too few votes for too long          |
//    +----------------------> Leading -----------------------------------------+
//
//   event \ state   Vacant           Following        Claiming         Leading
//   Look            yes, if free     no (its leader:  no               no
//                                    yes)
//   Claim           a vote, if free  a vote, if free  no               no
//   Lead            Following        a vote, if from  Following,       no; leases rule this out
//                                    its leader       claim dropped
//   Release         vote free        Vacant           recorded         recorded
//   Vote            recorded, maybe  recorded         maybe Leading    lease renewed
//                   Claiming
//   tick            asks all seats   maybe Vacant     maybe Vacant     asks again, maybe Vacant
//   Resign          returns the votes it holds; from then on votes, but never claims
//
// Lease:   a vote is for one seat and lasts for `lease` on the voter's clock; until it expires, the
//          voter votes for no other seat. A seat with a majority of the votes leads for 4/5 of
//          `lease` on its own clock, counted from when it asked for the last of them. Any two
//          majorities share a voter, so there is at most one leader at a time, unless one clock
//          runs a fifth faster than another.
// Restart: a seat that has just started may have forgotten a vote. Its votes count once it is older
//          than a lease. Before that, they count only if all seats vote alike, which proves that
//          there is no leader and lets a new job start at once.
// Order:   among the reachable seats, the first in the list claims first.
// Rounds:  the leader reports the number of rounds to a majority before it announces a new round
//          (RoundWanted, RoundKnown). A later leader therefore never reuses a round number.
// Time:    `now` is read from LeaseClock (deadline_timer.h) and stays the same during one step.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/leader/leader_election.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;
// The connection that a ballot came from.
using Caller = std::uint64_t;

struct ElectionSpec {
  std::string run_id;
  std::string seats;  // the list as text; must be the same on all seats
  int seat = 0;
  int seat_count = 3;
  std::uint64_t instance = 0;  // random
  std::chrono::milliseconds lease{3000};
};

// Events.
struct ElectionStart {};
struct BallotCame {
  Caller caller = 0;
  Ballot ballot;
};
struct VoteCame {
  int seat = 0;
  Vote vote;
};
// The seat's process has accepted the connection. The pending ballot is sent right after this
// event, and the timeout for its answer starts.
struct SeatLinked {
  int seat = 0;
};
// The last ballot to this seat could not be sent, or will not be answered.
struct SeatFailed {
  int seat = 0;
};
// The leader wants to start a round, which brings the count to `rounds`. Answered by RoundKnown.
struct RoundWanted {
  int rounds = 0;
};
// This seat's agent is leaving: it gives up the lead for good. Answered by Resigned.
struct Resign {};
struct ElectionTick {};
using ElectionEvent = std::variant<ElectionStart, BallotCame, VoteCame, SeatLinked, SeatFailed,
                                   RoundWanted, Resign, ElectionTick>;

// Actions.
// Replaces a ballot that was not sent yet. Answered by VoteCame or SeatFailed.
struct AskSeat {
  int seat = 0;
  Ballot ballot;
};
// Closes the connection to this seat.
struct HangUp {
  int seat = 0;
};
struct AnswerBallot {
  Caller caller = 0;
  Vote vote;
};
struct RefuseBallot {
  Caller caller = 0;
  Error error;
};
// It follows this seat from now on.
struct SeatFollowed {
  int seat = 0;
  std::uint64_t term = 0;
};
using ElectionAction = std::variant<AskSeat, HangUp, AnswerBallot, RefuseBallot, SeatFollowed,
                                    Leading, LeadLost, Vacant, RoundKnown, Resigned>;

enum class ElectionPhase { Vacant, Following, Claiming, Leading };

// Another seat, as this one sees it.
struct SeatView {
  std::optional<std::uint64_t> asked;  // the ballot whose answer is awaited
  BallotKind asked_kind = BallotKind::Look;
  int asked_rounds = 0;
  Time asked_at;           // or linked, if that was later
  bool is_linked = false;  // until it fails or is hung up
  Time next_ask;
  Time heard_at;
  bool is_reached = false;
  std::optional<Time> would_vote;  // until when its answer to a Look is valid
  bool is_fresh = false;
  std::uint64_t instance = 0;
  std::optional<Time> granted_at;   // of this term: when the vote was asked for
  bool is_vote_remembered = false;  // refers to granted_at
  int known_rounds = 0;             // as Leading
};

struct ElectionState {
  ElectionSpec spec;
  ElectionPhase phase = ElectionPhase::Vacant;
  std::vector<SeatView> seats;  // the entry for this seat is unused
  Time remembers_from;          // from then on this seat's votes count
  std::uint64_t last_number = 0;
  Time last_turn;
  std::uint64_t term = 0;      // the highest seen
  std::uint64_t own_term = 0;  // of the last claim
  int rounds = 0;              // the highest count seen
  // This seat as a voter.
  std::uint64_t voted_term = 0;      // of the last vote
  std::uint64_t voted_instance = 0;  // the instance it voted for
  std::optional<Time> voted_until;
  // The leader that it follows.
  int leader = 0;
  std::uint64_t leader_term = 0;
  Time leader_until;
  // Vacant: when it may claim, unless an earlier seat does. Claiming: when the claim expires.
  Time turn;
  std::optional<Time> able_since;  // Vacant: since when enough seats would vote for it
  // Leading.
  bool is_settled = false;             // elected unanimously
  std::vector<std::uint64_t> settled;  // the voters' instances
  int wanted_rounds = 0;
  int known_rounds = 0;  // by a majority
  bool is_retired = false;
  bool has_resigned = false;  // Resigned was returned
};

ElectionState open_election(ElectionSpec spec);

std::vector<ElectionAction> step(ElectionState& state, const ElectionEvent& event, Time now);

// Whether this seat leads now. The caller checks it before each action as leader.
bool is_leading(const ElectionState& state, Time now);

// Leading: whether the other seats that are known to be alive form a majority without this one.
bool has_successor(const ElectionState& state);

// When the next ElectionTick is due.
std::optional<Time> deadline(const ElectionState& state);

}  // namespace drun::rendezvous
