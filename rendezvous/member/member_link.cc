// The member's connection: reached, held, lost, reached again.
#include <algorithm>
#include <utility>

#include "rendezvous/member/member_ending.h"
#include "rendezvous/member/member_turn.h"
#include "rendezvous/round/roll_call.h"

namespace drun::rendezvous {
namespace {

using Phase = MemberPhase;

constexpr Milliseconds kFirstBackOff{50};
constexpr Milliseconds kMostBackOff{1000};
// With several endpoints, of which another is asked each time.
constexpr Milliseconds kMostBackOffAmongSeats{250};
constexpr std::chrono::seconds kReportInterval{10};
// The coordinator's own timeout comes first, with the better words.
constexpr std::chrono::seconds kTimeoutGrace{2};

// Neither a close nor silence shows that something else than a coordinator is there: one that is
// overloaded, just dying, or behind a proxy does the same. Only foreign bytes do (WrongPeer).
std::string closing_text(const ConnectionLost& lost) {
  if (lost.has_spoken)
    return "closes connections before it has answered (" + lost.reason +
           "): the coordinator is overloaded or about to end";
  return "accepts connections but closes them without an answer (" + lost.reason +
         "): the coordinator is overloaded, or another program uses that port";
}

// A ping is due, or the coordinator has been silent for too long.
Time next_heartbeat(const MemberState& state) {
  return std::min(state.next_ping, state.heard + state.heartbeat_timeout);
}

}  // namespace

void MemberTurn::handle(const MemberStart&) {
  state_.started = now_;
  state_.next_report = now_ + kReportInterval;
  state_.back_off = kFirstBackOff;
  if (has_seats()) aim_at_next();
  dial();
}

void MemberTurn::handle(const Connected&) {
  if (state_.phase != Phase::Dialing) return;
  state_.phase = Phase::Greeting;
  state_.answer_by = now_ + (has_seats() ? patience() : state_.spec.join.heartbeat_timeout);
  Hello hello = hello_of(state_.spec);
  hello.lost_term = state_.seeking.lost_term;
  if (is_elastic() && state_.world && state_.first_world) {
    hello.past = past_of(state_.memory, *state_.world, *state_.first_world, now_);
    if (!state_.own_failures.empty()) hello.past->failure = first_own_failure();
  }
  say(std::move(hello));
}

void MemberTurn::handle(const ConnectFailed& failed) {
  if (state_.phase != Phase::Dialing) return;
  // A coordinator that was there and listens no more is dead.
  if (has_seats()) return ask_elsewhere("cannot be reached yet: " + failed.reason);
  if (state_.rejoin_by && failed.is_refused) return end(lost_ending(state_, *state_.lost_reason));
  rest("cannot be reached yet: " + failed.reason);
}

void MemberTurn::handle(const WrongPeer& wrong) {
  if (state_.phase != Phase::Greeting) return connection_lost("it " + wrong.reason);
  if (has_seats() && ++state_.seeking.wrong_answers < most_wrong_answers())
    return ask_elsewhere(wrong.reason);
  give_up(wrong_peer_error(state_, wrong.reason));
}

void MemberTurn::handle(const OtherCoordinator& other) {
  if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Joined}))
    end(NotRun{other.error});
}

void MemberTurn::handle(const MemberTick&) {
  const bool is_joining =
      is_in({Phase::Resting, Phase::Dialing, Phase::Greeting}) && now_ >= join_by();
  // The coordinator of an elastic world keeps that time itself, and spares wait without end.
  const bool is_overdue =
      state_.phase == Phase::Joined && !is_elastic() && now_ >= join_by() + kTimeoutGrace;
  if (is_joining && state_.rejoin_by) return end(lost_ending(state_, *state_.lost_reason));
  if (is_joining || is_overdue) return give_up(join_timeout_error(state_));
  if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting})) report_trouble();
  if (state_.phase == Phase::Resting && now_ >= state_.retry_at) {
    dial();
    return;
  }
  const bool is_unanswered = has_seats() && is_in({Phase::Dialing, Phase::Greeting});
  if (is_unanswered && now_ >= state_.answer_by) return ask_elsewhere("has not answered");
  if (state_.phase == Phase::Greeting && now_ >= state_.answer_by) return no_answer();
  if (state_.phase == Phase::Leaving && state_.leave_by && now_ >= *state_.leave_by)
    return end(lost_ending(state_, "no answer to a signal"));
  keep_alive();
}

void MemberTurn::keep_alive() {
  const bool has_heartbeat = is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping,
                                    Phase::Stopped, Phase::Leaving});
  const Time wanted = next_heartbeat(state_);
  if (!has_heartbeat || now_ < wanted) return;
  const Time::duration interval = state_.heartbeat_timeout / 4;
  // Ticks come late when this process itself was held up (stopped, swapped out): what the
  // coordinator sent meanwhile has not been read yet.
  if (now_ - wanted > interval) state_.heard = now_;
  if (now_ - state_.heard >= state_.heartbeat_timeout) {
    actions_.emplace_back(Disconnect{});
    return connection_lost("no sign of life for " + duration_text(state_.heartbeat_timeout));
  }
  if (now_ < state_.next_ping) return;
  state_.next_ping = now_ + interval;
  say(Ping{});
}

void MemberTurn::report_trouble() {
  if (now_ < state_.next_report) return;
  state_.next_report = now_ + kReportInterval;
  log(LogLevel::Info, waiting_for_text(state_) + "; " + duration_text(time_left()) + " left");
}

// An elastic world goes on without this node; it may come back as the member that it was.
void MemberTurn::part(const std::string& reason) {
  log(LogLevel::Warning, "lost the coordinator at " + state_.endpoint + ": " + reason +
                             "; stopping workers and trying to join again");
  state_.lost_reason = reason;
  if (state_.phase == Phase::Stopped) return rejoin();
  if (is_in({Phase::Running, Phase::Done})) actions_.emplace_back(StopWorkers{state_.world->round});
  state_.phase = Phase::Parting;
}

void MemberTurn::rejoin() {
  if (!state_.unusable.empty())
    return end(lost_ending(
        state_, *state_.lost_reason + "; this node does not join again: " + state_.unusable));
  state_.rejoin_by =
      now_ + (has_seats() ? state_.spec.join.join_timeout : state_.heartbeat_timeout);
  state_.seeking.lost_term = state_.seeking.term;
  state_.back_off = kFirstBackOff;
  rest("was lost: " + *state_.lost_reason);
}

// Before the first world the job has not run here; after one its coordinator is lost.
void MemberTurn::give_up(Error error) {
  if (!state_.rejoin_by) return end(NotRun{std::move(error)});
  end(lost_ending(state_, *state_.lost_reason + "; then " + error.message));
}

void MemberTurn::rest(std::string trouble) {
  state_.phase = Phase::Resting;
  state_.last_trouble = std::move(trouble);
  state_.retry_at = now_ + jittered(state_.back_off);
  state_.back_off =
      std::min(state_.back_off * 2, has_seats() ? kMostBackOffAmongSeats : kMostBackOff);
  log(LogLevel::Debug, state_.endpoint + " " + state_.last_trouble);
  if (has_seats()) aim_at_next();
}

void MemberTurn::connection_lost(const std::string& reason) { handle(ConnectionLost{reason}); }

void MemberTurn::handle(const ConnectionLost& lost) {
  const std::string& reason = lost.reason;
  switch (state_.phase) {
    case Phase::Resting:
    case Phase::Parting:
    case Phase::Ending:
    case Phase::Ended:
      return;
    case Phase::Dialing:
      return rest(reason);
    case Phase::Greeting:
      if (has_seats()) return ask_elsewhere("closed the connection (" + reason + ")");
      return rest(closing_text(lost));
    case Phase::Joined:
      log(LogLevel::Warning, "lost the coordinator at " + state_.endpoint +
                                 " before the world was complete: " + reason +
                                 "; trying to join again");
      if (!has_seats()) return rest("was lost: " + reason);
      state_.lost_reason = reason;
      return rejoin();
    case Phase::Leaving:
      return end(lost_ending(state_, reason));
    case Phase::Running:
    case Phase::Done:
    case Phase::Stopping:
    case Phase::Stopped:
      break;
  }
  state_.last_trouble = reason;
  if (is_elastic() && !state_.signal) return part(reason);
  log(LogLevel::Error, "lost the coordinator at " + state_.endpoint + ": " + reason);
  end_once_stopped(std::nullopt);
}

void MemberTurn::no_answer() {
  actions_.emplace_back(Disconnect{});
  rest("accepts connections but has not answered for " +
       duration_text(state_.spec.join.heartbeat_timeout) +
       ": the coordinator is overloaded, or another program uses that port");
}

// Many members that lost one coordinator must not come back all at once.
Time::duration MemberTurn::jittered(Milliseconds longest) {
  constexpr unsigned kSteps = 1024;
  const Time::duration half = Time::duration(longest) / 2;
  return half + half * (state_.jitter() % (kSteps + 1)) / kSteps;
}

void MemberTurn::broken(const std::string& what) {
  actions_.emplace_back(Disconnect{});
  connection_lost("it broke the control protocol (" + what + ")");
}

std::optional<Time> deadline(const MemberState& state) {
  const Time join_by = state.rejoin_by.value_or(state.started + state.spec.join.join_timeout);
  switch (state.phase) {
    case Phase::Resting:
      return std::min({state.retry_at, join_by, state.next_report});
    case Phase::Dialing:
      if (!state.spec.join.seats.empty())
        return std::min({state.answer_by, join_by, state.next_report});
      return std::min(join_by, state.next_report);
    case Phase::Greeting:
      return std::min({state.answer_by, join_by, state.next_report});
    case Phase::Joined:
      if (state.spec.join.elastic) return next_heartbeat(state);
      return std::min(next_heartbeat(state), join_by + kTimeoutGrace);
    case Phase::Leaving:
      return std::min(next_heartbeat(state), state.leave_by.value_or(state.next_ping));
    case Phase::Running:
    case Phase::Done:
    case Phase::Stopping:
    case Phase::Stopped:
      return next_heartbeat(state);
    case Phase::Parting:
    case Phase::Ending:
    case Phase::Ended:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace drun::rendezvous
