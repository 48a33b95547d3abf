#include "rendezvous/leader/election.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {
namespace {

// Fractions of the lease. A question over an open link is answered within the patience, or never.
// How long a link takes to open (name lookup, TCP, TLS) is limited by the edge alone: where DNS is
// slower than the patience, an election would otherwise be impossible.
Time::duration patience(const ElectionState& state) { return state.spec.lease / 3; }
Time::duration claim_limit(const ElectionState& state) { return state.spec.lease / 4; }
Time::duration renewal(const ElectionState& state) { return state.spec.lease / 6; }
Time::duration look_interval(const ElectionState& state) { return state.spec.lease / 8; }
// The shortest time between two questions to a seat that has refused its vote.
Time::duration second_look(const ElectionState& state) { return look_interval(state) / 8; }
// The interval between the turns of two reachable seats.
Time::duration turn_gap(const ElectionState& state) { return state.spec.lease / 10; }
// Allows for a voter's faster clock, and for a leader that notices the end late.
Time::duration lead_length(const ElectionState& state) { return state.spec.lease * 4 / 5; }

// A vote that is returned late is useless, so a Release does not wait for a link.
bool is_timed(const SeatView& seat) {
  return seat.is_linked || seat.asked_kind == BallotKind::Release;
}

int majority_of(const ElectionState& state) { return state.spec.seat_count / 2 + 1; }

Time lead_until(const ElectionState& state, Time now) {
  std::vector<Time> votes;
  if (state.is_settled || now >= state.remembers_from) votes.push_back(Time::max());
  for (const SeatView& seat : state.seats) {
    if (seat.granted_at && seat.is_vote_remembered) votes.push_back(*seat.granted_at);
  }
  const auto needed = static_cast<std::size_t>(majority_of(state));
  if (votes.size() < needed) return Time::min();
  std::sort(votes.begin(), votes.end(), std::greater<>());
  return votes[needed - 1] + lead_length(state);
}

Time own_turn(const ElectionState& state) {
  const auto own = state.seats.begin() + state.spec.seat;
  // A seat that has not answered may still be alive.
  const auto before = std::count_if(state.seats.begin(), own, [](const auto& seat) {
    return seat.is_reached || seat.asked.has_value();
  });
  return std::max(state.turn, state.able_since.value_or(state.turn)) + turn_gap(state) * before;
}

}  // namespace

// One step of the election's state machine. Collects the actions that the event causes.
class ElectionTurn {
 public:
  ElectionTurn(ElectionState& state, Time now) : state_(state), now_(now) {}

  // --- Voter: answers the other seats' ballots

  void handle(const ElectionStart&) {
    state_.remembers_from = now_ + state_.spec.lease;
    state_.turn = now_;
    for (SeatView& seat : state_.seats) seat.next_ask = now_;
  }

  // Why the sender cannot take part in this election; empty if it can.
  std::string objection(const Ballot& ballot) const {
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

  void handle(const BallotCame& came) {
    const Ballot& ballot = came.ballot;
    if (std::string reason = objection(ballot); !reason.empty()) {
      actions_.emplace_back(
          RefuseBallot{came.caller, Error{ErrorCode::Refused, std::move(reason)}});
      return;
    }
    state_.term = std::max(state_.term, ballot.term);
    state_.rounds = std::max(state_.rounds, ballot.rounds);
    SeatView& sender = state_.seats[static_cast<std::size_t>(ballot.seat)];
    // A seat that has just connected is asked now, not at its next check, and so is one that has
    // refused its vote but has no leader any more: only a vacant seat looks.
    if (!sender.is_reached)
      sender.next_ask = now_;
    else if (ballot.kind == BallotKind::Look && !sender.would_vote)
      sender.next_ask = std::min(sender.next_ask, sender.asked_at + second_look(state_));
    sender.heard_at = now_;
    sender.is_reached = true;
    bool is_granted = false;
    switch (ballot.kind) {
      case BallotKind::Look:
        is_granted = would_vote_for(ballot);
        break;
      case BallotKind::Lead:
        if (state_.phase == ElectionPhase::Claiming) give_claim_up();
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

  Vote vote(const Ballot& ballot, bool is_granted) const {
    using std::chrono::milliseconds;
    Vote vote{.number = ballot.number,
              .instance = state_.spec.instance,
              .is_granted = is_granted,
              .is_fresh = !remembers(),
              .term = state_.term,
              .rounds = state_.rounds};
    if (is_granted) return vote;
    if (state_.phase == ElectionPhase::Leading || state_.phase == ElectionPhase::Claiming)
      vote.free_in = state_.spec.lease;
    else if (is_voted_away())
      vote.free_in = std::chrono::ceil<milliseconds>(*state_.voted_until - now_);
    return vote;
  }

  bool would_vote_for(const Ballot& ballot) const {
    if (state_.phase == ElectionPhase::Leading || state_.phase == ElectionPhase::Claiming)
      return false;
    return !is_voted_away() || state_.voted_instance == ballot.instance;
  }

  // A ballot of an old term may arrive late. The terms of votes only increase.
  bool vote_for(const Ballot& ballot) {
    const bool is_same = ballot.instance == state_.voted_instance;
    const bool is_late =
        ballot.term < state_.voted_term || (ballot.term == state_.voted_term && !is_same);
    if (is_late || !would_vote_for(ballot)) return false;
    state_.voted_term = ballot.term;
    state_.voted_instance = ballot.instance;
    state_.voted_until = now_ + state_.spec.lease;
    return true;
  }

  void take_back(const Ballot& ballot) {
    if (ballot.instance == state_.voted_instance && ballot.term >= state_.voted_term)
      state_.voted_until.reset();
    if (state_.phase == ElectionPhase::Following && state_.leader == ballot.seat &&
        ballot.term >= state_.leader_term)
      become_vacant();
  }

  void follow(const Ballot& ballot) {
    if (state_.phase == ElectionPhase::Leading) return;
    const bool is_known = state_.phase == ElectionPhase::Following;
    if (is_known && ballot.term < state_.leader_term) return;
    const bool is_same =
        is_known && state_.leader == ballot.seat && state_.leader_term == ballot.term;
    state_.phase = ElectionPhase::Following;
    state_.leader = ballot.seat;
    state_.leader_term = ballot.term;
    state_.leader_until = now_ + state_.spec.lease;
    if (!is_same) actions_.emplace_back(SeatFollowed{ballot.seat, ballot.term});
  }

  void become_vacant() {
    state_.phase = ElectionPhase::Vacant;
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

  // Called after each event.
  void settle() {
    if (state_.phase == ElectionPhase::Following && now_ >= state_.leader_until) become_vacant();
    if (state_.phase == ElectionPhase::Leading) check_lead();
    if (state_.phase == ElectionPhase::Claiming) win_if_it_has();
    if (state_.phase == ElectionPhase::Vacant) claim_if_it_can();
    ask_who_is_due();
    if (state_.phase == ElectionPhase::Leading) check_rounds();
    if (state_.is_retired) check_retreat();
    state_.last_turn = now_;
  }

  // --- Candidate and leader: sends ballots to the other seats

  void handle(const VoteCame& came) {
    SeatView& seat = state_.seats[static_cast<std::size_t>(came.seat)];
    state_.term = std::max(state_.term, came.vote.term);
    state_.rounds = std::max(state_.rounds, came.vote.rounds);
    if (seat.asked != came.vote.number) return;  // another question has been asked since
    seat.asked.reset();
    seat.is_reached = true;
    take_vote(came.seat, came.vote);
  }

  void take_vote(int index, const Vote& vote) {
    SeatView& seat = state_.seats[static_cast<std::size_t>(index)];
    const bool is_settled =
        state_.is_settled && state_.settled[static_cast<std::size_t>(index)] == vote.instance;
    const bool is_remembered = !vote.is_fresh || is_settled;
    seat.is_fresh = vote.is_fresh;
    seat.instance = vote.instance;
    switch (seat.asked_kind) {
      case BallotKind::Look:
        seat.would_vote =
            vote.is_granted ? std::optional(now_ + claim_limit(state_)) : std::nullopt;
        seat.next_ask = now_ + look_interval(state_);
        if (vote.is_granted) return;
        if (seat.heard_at > seat.asked_at)  // it may have become vacant since
          seat.next_ask = seat.asked_at + second_look(state_);
        else  // not before its answer can change
          seat.next_ask =
              std::min(seat.next_ask, now_ + std::max(vote.free_in, std::chrono::milliseconds(1)));
        return;
      case BallotKind::Claim:
      case BallotKind::Lead:
        if (!vote.is_granted) return;
        seat.known_rounds = seat.asked_rounds;
        // A restarted seat has no vote to honor yet; the vote that it gave before still counts.
        if (seat.granted_at && seat.is_vote_remembered && !is_remembered) return;
        seat.granted_at = seat.asked_at;
        seat.is_vote_remembered = is_remembered;
        return;
      case BallotKind::Release:
        return;
    }
  }

  void handle(const SeatLinked& linked) {
    SeatView& seat = state_.seats[static_cast<std::size_t>(linked.seat)];
    seat.is_linked = true;
    if (seat.asked) seat.asked_at = now_;
  }

  void handle(const SeatFailed& failed) {
    SeatView& seat = state_.seats[static_cast<std::size_t>(failed.seat)];
    seat.is_linked = false;
    seat.asked.reset();
    seat.is_reached = false;
    seat.would_vote.reset();
    // The link opened after the ballot was queued.
    const bool is_there = seat.heard_at > seat.asked_at;
    seat.next_ask = is_there ? now_ : now_ + look_interval(state_);
    seat.heard_at = Time();
  }

  void handle(const RoundWanted& wanted) {
    if (state_.phase != ElectionPhase::Leading) return;
    state_.wanted_rounds = std::max(state_.wanted_rounds, wanted.rounds);
    state_.rounds = std::max(state_.rounds, wanted.rounds);
    for_others([this](int, SeatView& seat) {
      if (seat.is_reached) seat.next_ask = now_;
    });
  }

  void handle(const Resign&) {
    state_.is_retired = true;
    if (state_.phase == ElectionPhase::Claiming) give_claim_up();
    if (state_.phase != ElectionPhase::Leading) return;
    become_vacant();
    ask_all(BallotKind::Release);
  }

  void check_retreat() {
    bool is_awaited = false;
    for_others([&](int, const SeatView& seat) {
      is_awaited = is_awaited || (seat.asked && seat.asked_kind == BallotKind::Release);
    });
    if (!is_awaited && !std::exchange(state_.has_resigned, true)) actions_.emplace_back(Resigned{});
  }

  void ask(int index, BallotKind kind) {
    SeatView& seat = state_.seats[static_cast<std::size_t>(index)];
    const ElectionSpec& spec = state_.spec;
    seat.asked = ++state_.last_number;
    seat.asked_kind = kind;
    seat.asked_rounds = state_.wanted_rounds;
    seat.asked_at = now_;
    const std::uint64_t term = kind == BallotKind::Look ? state_.term : state_.own_term;
    actions_.emplace_back(AskSeat{index,
                                  {.run_id = spec.run_id,
                                   .seats = spec.seats,
                                   .seat = spec.seat,
                                   .instance = spec.instance,
                                   .number = *seat.asked,
                                   .kind = kind,
                                   .term = term,
                                   .rounds = state_.rounds}});
  }

  void ask_all(BallotKind kind) {
    for_others([this, kind](int index, SeatView&) { ask(index, kind); });
  }

  void ask_who_is_due() {
    for_others([this](int index, SeatView& seat) {
      if (seat.asked && is_timed(seat) && now_ - seat.asked_at >= patience(state_)) {
        actions_.emplace_back(HangUp{index});
        seat.is_linked = false;
        seat.asked.reset();
        seat.is_reached = false;
        seat.would_vote.reset();
      }
      if (seat.asked || now_ < seat.next_ask) return;
      if (state_.phase == ElectionPhase::Vacant && !state_.is_retired) {
        seat.next_ask = now_ + look_interval(state_);
        ask(index, BallotKind::Look);
      } else if (state_.phase == ElectionPhase::Leading) {
        seat.next_ask = now_ + renewal(state_);
        ask(index, BallotKind::Lead);
      }
    });
  }

  void claim_if_it_can() {
    if (is_voted_away() || state_.is_retired) return state_.able_since.reset();
    int all = 1;
    int remembering = remembers() ? 1 : 0;
    for_others([&](int, const SeatView& seat) {
      if (!seat.would_vote || *seat.would_vote <= now_) return;
      ++all;
      remembering += seat.is_fresh ? 0 : 1;
    });
    if (remembering < majority_of(state_) && all < state_.spec.seat_count)
      return state_.able_since.reset();
    if (!state_.able_since) state_.able_since = now_;
    if (now_ < own_turn(state_)) return;
    state_.able_since.reset();
    state_.phase = ElectionPhase::Claiming;
    state_.own_term = ++state_.term;
    state_.turn = now_ + claim_limit(state_);
    state_.is_settled = false;
    for_others([](int, SeatView& seat) { seat.granted_at.reset(); });
    for_others([this](int index, const SeatView& seat) {
      if (seat.would_vote) ask(index, BallotKind::Claim);
    });
  }

  void win_if_it_has() {
    int all = 1;
    int remembering = remembers() ? 1 : 0;
    bool is_awaited = false;
    for_others([&](int, const SeatView& seat) {
      is_awaited = is_awaited || (seat.asked && seat.asked_kind == BallotKind::Claim);
      if (!seat.granted_at) return;
      ++all;
      remembering += seat.is_vote_remembered ? 1 : 0;
    });
    const bool is_elected_by_all = all == state_.spec.seat_count;
    if (remembering < majority_of(state_) && !is_elected_by_all) {
      if (!is_awaited || now_ >= state_.turn) give_claim_up();
      return;
    }
    state_.is_settled = is_elected_by_all;
    state_.settled.assign(state_.seats.size(), 0);
    for_others([&](int index, SeatView& seat) {
      state_.settled[static_cast<std::size_t>(index)] = seat.instance;
      seat.is_vote_remembered = seat.is_vote_remembered || is_elected_by_all;
    });
    state_.phase = ElectionPhase::Leading;
    if (!is_leading(state_, now_)) return give_claim_up();  // the votes arrived too late
    state_.wanted_rounds = state_.known_rounds = state_.rounds;
    actions_.emplace_back(Leading{state_.own_term, {.rounds = state_.rounds}});
    for_others([this](int, SeatView& seat) { seat.next_ask = now_ + renewal(state_); });
    ask_all(BallotKind::Lead);
  }

  // Returns the votes. Each seat waits for a different time before it claims again, also where two
  // seats do not reach each other.
  void give_claim_up() {
    const ElectionSpec& spec = state_.spec;
    state_.phase = ElectionPhase::Vacant;
    state_.turn = now_ + turn_gap(state_) * (spec.seat_count + spec.seat) / spec.seat_count;
    for_others([this](int index, SeatView& seat) {
      if (seat.granted_at || (seat.asked && seat.asked_kind == BallotKind::Claim))
        ask(index, BallotKind::Release);
      seat.granted_at.reset();
      seat.would_vote.reset();
      seat.next_ask = now_ + look_interval(state_);
    });
  }

  void check_lead() {
    if (is_leading(state_, now_)) return;
    actions_.emplace_back(LeadLost{
        "it has not heard from enough of the " + std::to_string(state_.spec.seat_count) +
        " endpoints " + state_.spec.seats + " for " +
        duration_text(std::chrono::duration_cast<std::chrono::milliseconds>(lead_length(state_)))});
    become_vacant();
    ask_all(BallotKind::Release);
  }

  void check_rounds() {
    if (state_.wanted_rounds <= state_.known_rounds) return;
    int knowing = 1;
    for_others([&](int, const SeatView& seat) {
      knowing += seat.granted_at && seat.known_rounds >= state_.wanted_rounds ? 1 : 0;
    });
    if (knowing < majority_of(state_)) return;
    state_.known_rounds = state_.wanted_rounds;
    actions_.emplace_back(RoundKnown{state_.known_rounds});
  }

  void handle(const ElectionTick&) {}
  std::vector<ElectionAction> take_actions() { return std::move(actions_); }

  // --- Helpers

  bool is_voted_away() const { return state_.voted_until && *state_.voted_until > now_; }

  bool remembers() const { return now_ >= state_.remembers_from; }

  template <typename Each>
  void for_others(Each each) {
    for (int seat = 0; seat < state_.spec.seat_count; ++seat) {
      if (seat != state_.spec.seat) each(seat, state_.seats[static_cast<std::size_t>(seat)]);
    }
  }

 private:
  ElectionState& state_;
  const Time now_;
  std::vector<ElectionAction> actions_;
};

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

bool is_leading(const ElectionState& state, Time now) {
  return state.phase == ElectionPhase::Leading && now < lead_until(state, now);
}

bool has_successor(const ElectionState& state) {
  const auto others = std::count_if(state.seats.begin(), state.seats.end(),
                                    [](const SeatView& seat) { return seat.is_reached; });
  return state.phase == ElectionPhase::Leading && others >= majority_of(state);
}

std::optional<Time> deadline(const ElectionState& state) {
  std::optional<Time> earliest;
  const auto consider = [&](Time when) {
    if (when > state.last_turn && (!earliest || when < *earliest)) earliest = when;
  };
  const bool is_asking = (state.phase == ElectionPhase::Vacant && !state.is_retired) ||
                         state.phase == ElectionPhase::Leading;
  for (std::size_t i = 0; i < state.seats.size(); ++i) {
    if (static_cast<int>(i) == state.spec.seat) continue;
    const SeatView& seat = state.seats[i];
    if (seat.asked && is_timed(seat))
      consider(seat.asked_at + patience(state));
    else if (!seat.asked && is_asking)
      consider(seat.next_ask);
  }
  switch (state.phase) {
    case ElectionPhase::Vacant:
      consider(own_turn(state));
      consider(state.remembers_from);
      if (state.voted_until) consider(*state.voted_until);
      break;
    case ElectionPhase::Following:
      consider(state.leader_until);
      break;
    case ElectionPhase::Claiming:
      consider(state.turn);
      break;
    case ElectionPhase::Leading:
      consider(lead_until(state, state.last_turn));
      break;
  }
  return earliest;
}

}  // namespace drun::rendezvous
