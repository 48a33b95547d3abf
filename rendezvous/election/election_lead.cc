// A candidate's and a leader's half: what is asked of others.
#include <algorithm>
#include <functional>
#include <utility>

#include "rendezvous/election/election_turn.h"
#include "rendezvous/round/roll_call.h"

namespace drun::rendezvous {
namespace {

using Phase = ElectionPhase;

// Parts of the lease. What is asked over an open link is answered within the patience, or never.
// How long a link takes to open (name lookup, TCP, TLS) is limited by the edge alone: where DNS is
// slower than the patience, an election would otherwise be impossible.
Time::duration patience(const ElectionState& state) { return state.spec.lease / 3; }
Time::duration claim_limit(const ElectionState& state) { return state.spec.lease / 4; }
Time::duration renewal(const ElectionState& state) { return state.spec.lease / 6; }
Time::duration look_interval(const ElectionState& state) { return state.spec.lease / 8; }
// Between the turns of two seats that are both there.
Time::duration turn_gap(const ElectionState& state) { return state.spec.lease / 10; }
// The voter's clock may be so much slower, and the leader so much late in noticing.
Time::duration lead_length(const ElectionState& state) { return state.spec.lease * 4 / 5; }

// A vote that is given back late is of no use, so a Release does not wait for a link.
bool is_timed(const SeatView& seat) {
  return seat.is_linked || seat.asked_kind == BallotKind::Release;
}

}  // namespace

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

bool is_leading(const ElectionState& state, Time now) {
  return state.phase == Phase::Leading && now < lead_until(state, now);
}

Time own_turn(const ElectionState& state) {
  const auto own = state.seats.begin() + state.spec.seat;
  // Who has not answered yet may be there.
  const auto before = std::count_if(state.seats.begin(), own, [](const auto& seat) {
    return seat.is_reached || seat.asked.has_value();
  });
  return std::max(state.turn, state.able_since.value_or(state.turn)) + turn_gap(state) * before;
}

void ElectionTurn::handle(const VoteCame& came) {
  SeatView& seat = state_.seats[static_cast<std::size_t>(came.seat)];
  state_.term = std::max(state_.term, came.vote.term);
  state_.rounds = std::max(state_.rounds, came.vote.rounds);
  if (seat.asked != came.vote.number) return;  // another question has been asked since
  seat.asked.reset();
  seat.is_reached = true;
  take_vote(came.seat, came.vote);
}

void ElectionTurn::take_vote(int index, const Vote& vote) {
  SeatView& seat = state_.seats[static_cast<std::size_t>(index)];
  const bool is_settled =
      state_.is_settled && state_.settled[static_cast<std::size_t>(index)] == vote.instance;
  const bool is_remembered = !vote.is_fresh || is_settled;
  seat.is_fresh = vote.is_fresh;
  seat.instance = vote.instance;
  switch (seat.asked_kind) {
    case BallotKind::Look:
      seat.would_vote = vote.is_granted ? std::optional(now_ + claim_limit(state_)) : std::nullopt;
      seat.next_ask = now_ + look_interval(state_);
      if (!vote.is_granted)  // no sooner than it can say otherwise
        seat.next_ask =
            std::min(seat.next_ask, now_ + std::max(vote.free_in, std::chrono::milliseconds(1)));
      return;
    case BallotKind::Claim:
    case BallotKind::Lead:
      if (!vote.is_granted) return;
      seat.known_rounds = seat.asked_rounds;
      // One that was started again binds nobody yet; the vote it gave before goes on to.
      if (seat.granted_at && seat.is_vote_remembered && !is_remembered) return;
      seat.granted_at = seat.asked_at;
      seat.is_vote_remembered = is_remembered;
      return;
    case BallotKind::Release:
      return;
  }
}

void ElectionTurn::handle(const SeatLinked& linked) {
  SeatView& seat = state_.seats[static_cast<std::size_t>(linked.seat)];
  seat.is_linked = true;
  if (seat.asked) seat.asked_at = now_;
}

void ElectionTurn::handle(const SeatFailed& failed) {
  SeatView& seat = state_.seats[static_cast<std::size_t>(failed.seat)];
  seat.is_linked = false;
  seat.asked.reset();
  seat.is_reached = false;
  seat.would_vote.reset();
  // It has come meanwhile, and was asked too early.
  const bool is_there = seat.heard_at > seat.asked_at;
  seat.next_ask = is_there ? now_ : now_ + look_interval(state_);
  seat.heard_at = Time();
}

void ElectionTurn::handle(const RoundWanted& wanted) {
  if (state_.phase != Phase::Leading) return;
  state_.wanted_rounds = std::max(state_.wanted_rounds, wanted.rounds);
  state_.rounds = std::max(state_.rounds, wanted.rounds);
  for_others([this](int, SeatView& seat) {
    if (seat.is_reached) seat.next_ask = now_;
  });
}

void ElectionTurn::handle(const Resign&) {
  state_.is_retired = true;
  if (state_.phase == Phase::Claiming) give_claim_up();
  if (state_.phase != Phase::Leading) return;
  become_vacant();
  ask_all(BallotKind::Release);
}

void ElectionTurn::check_retreat() {
  bool is_awaited = false;
  for_others([&](int, const SeatView& seat) {
    is_awaited = is_awaited || (seat.asked && seat.asked_kind == BallotKind::Release);
  });
  if (!is_awaited && !std::exchange(state_.has_resigned, true)) actions_.emplace_back(Resigned{});
}

bool has_successor(const ElectionState& state) {
  const auto others = std::count_if(state.seats.begin(), state.seats.end(), [](const auto& seat) {
    return seat.granted_at && seat.is_reached;
  });
  return state.phase == Phase::Leading && others >= majority_of(state);
}

void ElectionTurn::ask(int index, BallotKind kind) {
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

void ElectionTurn::ask_all(BallotKind kind) {
  for_others([this, kind](int index, SeatView&) { ask(index, kind); });
}

void ElectionTurn::ask_who_is_due() {
  for_others([this](int index, SeatView& seat) {
    if (seat.asked && is_timed(seat) && now_ - seat.asked_at >= patience(state_)) {
      actions_.emplace_back(HangUp{index});
      seat.is_linked = false;
      seat.asked.reset();
      seat.is_reached = false;
      seat.would_vote.reset();
    }
    if (seat.asked || now_ < seat.next_ask) return;
    if (state_.phase == Phase::Vacant && !state_.is_retired) {
      seat.next_ask = now_ + look_interval(state_);
      ask(index, BallotKind::Look);
    } else if (state_.phase == Phase::Leading) {
      seat.next_ask = now_ + renewal(state_);
      ask(index, BallotKind::Lead);
    }
  });
}

void ElectionTurn::claim_if_it_can() {
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
  state_.phase = Phase::Claiming;
  state_.own_term = ++state_.term;
  state_.turn = now_ + claim_limit(state_);
  state_.is_settled = false;
  for_others([](int, SeatView& seat) { seat.granted_at.reset(); });
  for_others([this](int index, const SeatView& seat) {
    if (seat.would_vote) ask(index, BallotKind::Claim);
  });
}

void ElectionTurn::win_if_it_has() {
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
  state_.phase = Phase::Leading;
  if (!is_leading(state_, now_)) return give_claim_up();  // the votes were too long on their way
  state_.wanted_rounds = state_.known_rounds = state_.rounds;
  actions_.emplace_back(Leading{state_.own_term, state_.rounds});
  for_others([this](int, SeatView& seat) { seat.next_ask = now_ + renewal(state_); });
  ask_all(BallotKind::Lead);
}

// The votes it has got are given back; the next try is some time off, for each seat another.
void ElectionTurn::give_claim_up() {
  state_.phase = Phase::Vacant;
  state_.turn = now_ + turn_gap(state_) * (state_.spec.seat + 1);
  for_others([this](int index, SeatView& seat) {
    if (seat.granted_at || (seat.asked && seat.asked_kind == BallotKind::Claim))
      ask(index, BallotKind::Release);
    seat.granted_at.reset();
    seat.would_vote.reset();
    seat.next_ask = now_ + look_interval(state_);
  });
}

void ElectionTurn::check_lead() {
  if (is_leading(state_, now_)) return;
  actions_.emplace_back(LeadLost{
      "it has not heard from enough of the " + std::to_string(state_.spec.seat_count) +
      " endpoints " + state_.spec.seats + " for " +
      duration_text(std::chrono::duration_cast<std::chrono::milliseconds>(lead_length(state_)))});
  become_vacant();
  ask_all(BallotKind::Release);
}

void ElectionTurn::check_rounds() {
  if (state_.wanted_rounds <= state_.known_rounds) return;
  int knowing = 1;
  for_others([&](int, const SeatView& seat) {
    knowing += seat.granted_at && seat.known_rounds >= state_.wanted_rounds ? 1 : 0;
  });
  if (knowing < majority_of(state_)) return;
  state_.known_rounds = state_.wanted_rounds;
  actions_.emplace_back(RoundKnown{state_.known_rounds});
}

std::optional<Time> deadline(const ElectionState& state) {
  std::optional<Time> earliest;
  const auto consider = [&](Time when) {
    if (when > state.last_turn && (!earliest || when < *earliest)) earliest = when;
  };
  const bool is_asking =
      (state.phase == Phase::Vacant && !state.is_retired) || state.phase == Phase::Leading;
  for (std::size_t i = 0; i < state.seats.size(); ++i) {
    if (static_cast<int>(i) == state.spec.seat) continue;
    const SeatView& seat = state.seats[i];
    if (seat.asked && is_timed(seat))
      consider(seat.asked_at + patience(state));
    else if (!seat.asked && is_asking)
      consider(seat.next_ask);
  }
  switch (state.phase) {
    case Phase::Vacant:
      consider(own_turn(state));
      consider(state.remembers_from);
      if (state.voted_until) consider(*state.voted_until);
      break;
    case Phase::Following:
      consider(state.leader_until);
      break;
    case Phase::Claiming:
      consider(state.turn);
      break;
    case Phase::Leading:
      consider(lead_until(state, state.last_turn));
      break;
  }
  return earliest;
}

}  // namespace drun::rendezvous
