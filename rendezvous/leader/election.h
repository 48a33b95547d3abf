// core. The election: which of the listed seats leads, that is, coordinates the job. Each seat runs
// one; the page is docs/internals/election.md.
//
//              another leads                    its vote's time is over, it gives up
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
//   Look            would I vote?    no (its own:     no               no
//                                    yes)
//   Claim           a vote, if free  likewise         no               no
//   Lead            Following        a vote if its    Following,       no; by leases it cannot be
//                                    own              claim given up
//   Release         vote free        Vacant           noted            noted
//   Vote            noted, maybe     noted            maybe Leading    lead renewed
//                   Claiming
//   tick            looks around     maybe Vacant     maybe Vacant     asks again, maybe Vacant
//   Resign          votes on, and asks for none any more: a vote that it has is given back first
//
// Lease:   a vote is for one seat and lasts for `lease` on the voter's clock; meanwhile it is given
//          to nobody else. Who has votes of a majority leads for 4/5 of that on its own clock, from
//          the moment when it asked for the last of them. Two majorities share a voter, so two
//          never lead at a time, unless one of two clocks runs a fifth faster than the other.
// Memory:  a seat that was just started may have forgotten a vote: its vote counts once it is
//          older than a lease; before that only if all seats vote alike (which shows that nobody
//          leads, and makes a start instant).
// Order:   of the seats that are there the first in the list has the first turn to claim.
// Rounds:  how many rounds have begun is told to a majority before the world of one is
//          (RoundWanted, RoundKnown): a later leader knows, and no number is used twice.
// Units:   `now` is the LeaseClock (deadline_timer.h) of one turn.
// Owner:   a value, driven by election_driver.cc (and tests/sim).   Thread: any, one at a time.
// Errors:  none; a broken peer is an event.  Never throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;
// Who asks: a connection of the edge's.
using Caller = std::uint64_t;

struct ElectionSpec {
  std::string run_id;
  std::string seats;  // the list as text: all must have the same
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
// The way to it is open: its process has answered the connection. What it was asked before goes out
// right after this event, and the time for an answer begins.
struct SeatLinked {
  int seat = 0;
};
// The last ballot to it could not be sent, or its answer will not come.
struct SeatFailed {
  int seat = 0;
};
// The leader wants to begin its next round: so many will have begun. RoundKnown comes back.
struct RoundWanted {
  int rounds = 0;
};
// It leads no more, nor ever again: its agent goes. Resigned comes back.
struct Resign {};
struct ElectionTick {};
using ElectionEvent = std::variant<ElectionStart, BallotCame, VoteCame, SeatLinked, SeatFailed,
                                   RoundWanted, Resign, ElectionTick>;

// Actions.
// Replaces what was not sent yet. VoteCame or SeatFailed comes back.
struct AskSeat {
  int seat = 0;
  Ballot ballot;
};
// Its connection is of no use any more.
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
struct Leading {
  std::uint64_t term = 0;
  int rounds = 0;  // that have begun before
};
// Before anything that stands after it.
struct LeadLost {
  std::string reason;
};
struct Following {
  int seat = 0;
  std::uint64_t term = 0;
};
struct Vacant {};
struct RoundKnown {
  int rounds = 0;
};
// Whoever can be told has its vote back.
struct Resigned {};
struct ElectionLog {
  LogLevel level = LogLevel::Info;
  std::string text;
};
using ElectionAction = std::variant<AskSeat, HangUp, AnswerBallot, RefuseBallot, Leading, LeadLost,
                                    Following, Vacant, RoundKnown, Resigned, ElectionLog>;

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
  std::optional<Time> would_vote;  // until when its answer to a Look is worth something
  bool is_fresh = false;
  std::uint64_t instance = 0;
  std::optional<Time> granted_at;   // of this term: when the vote was asked for
  bool is_vote_remembered = false;  // that one
  int known_rounds = 0;             // as Leading
};

struct ElectionState {
  ElectionSpec spec;
  ElectionPhase phase = ElectionPhase::Vacant;
  std::vector<SeatView> seats;  // one's own is not looked at
  Time remembers_from;          // its own votes count
  std::uint64_t last_number = 0;
  Time last_turn;
  std::uint64_t term = 0;      // the highest heard of
  std::uint64_t own_term = 0;  // of the last claim
  int rounds = 0;              // the most heard of
  // As a voter.
  std::uint64_t voted_term = 0;      // of the last vote
  std::uint64_t voted_instance = 0;  // for whom
  std::optional<Time> voted_until;
  // Whom it follows.
  int leader = 0;
  std::uint64_t leader_term = 0;
  Time leader_until;
  // Vacant: when it may claim, but for the seats before it. Claiming: until then.
  Time turn;
  std::optional<Time> able_since;  // Vacant: enough others would vote for it
  // Leading.
  bool is_settled = false;             // elected by all
  std::vector<std::uint64_t> settled;  // who they were
  int wanted_rounds = 0;
  int known_rounds = 0;  // by a majority
  bool is_retired = false;
  bool has_resigned = false;  // and said so
};

ElectionState open_election(ElectionSpec spec);

std::vector<ElectionAction> step(ElectionState& state, const ElectionEvent& event, Time now);

// Whether it leads at this moment. Asked before each deed of a leader.
bool is_leading(const ElectionState& state, Time now);

// Leading: whether the others would be a majority without this seat, as far as it has heard.
bool has_successor(const ElectionState& state);

// When it wants an ElectionTick.
std::optional<Time> deadline(const ElectionState& state);

}  // namespace drun::rendezvous
