#include "rendezvous/member.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/member_ending.h"
#include "rendezvous/roll_call.h"

namespace drun::rendezvous {
namespace {

using Phase = MemberPhase;

constexpr Milliseconds kFirstBackOff{50};
constexpr Milliseconds kMostBackOff{1000};
constexpr std::chrono::seconds kReportInterval{10};
// The coordinator's own timeout comes first, with the better words.
constexpr std::chrono::seconds kTimeoutGrace{2};
constexpr std::chrono::seconds kLeaveLimit{2};
constexpr int kMostCloses = 5;

// One turn: the state, the time, and the actions as they come.
class Turn {
 public:
  Turn(MemberState& state, Time now) : state_(state), now_(now) {}

  void handle(const MemberStart&);
  void handle(const Connected&);
  void handle(const ConnectFailed& failed);
  void handle(const WrongPeer& wrong);
  void handle(const OtherCoordinator& other);
  void handle(const Heard& heard);
  void handle(const ConnectionLost& lost) { connection_lost(lost.reason); }
  void handle(const OwnFailure& own);
  void handle(const OwnSuccess& own);
  void handle(const OwnStopped& own);
  void handle(const OwnSignal& own);
  void handle(const MemberTick&);

  std::vector<MemberAction> take_actions() { return std::move(actions_); }

 private:
  void hear(const Welcome& welcome);
  void hear(const Waiting& waiting);
  void hear(const Refused& refused);
  void hear(const WorldReady& ready);
  void hear(const Stop& stop);
  void hear(const Finish& finish);
  void hear(const Pong&) {}

  void rest(std::string trouble);
  void connection_lost(const std::string& reason);
  void closed_without_a_word(const std::string& reason);
  void broken(const std::string& what);
  void end(Ending ending);
  void end_once_stopped(std::optional<Outcome> outcome);
  void conclude(Outcome outcome);
  void keep_alive();
  void report_trouble();
  void leave(std::optional<Time> by);

  bool is_in(std::initializer_list<Phase> phases) const {
    return std::find(phases.begin(), phases.end(), state_.phase) != phases.end();
  }
  bool is_round(int round) const { return state_.world && state_.world->round == round; }
  Time join_by() const { return state_.started + state_.spec.join.join_timeout; }
  Milliseconds time_left() const {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(join_by() - now_));
  }
  void say(MemberMessage message) { actions_.emplace_back(Say{std::move(message)}); }
  void log(LogLevel level, std::string text) {
    actions_.emplace_back(MemberLog{level, std::move(text)});
  }

  MemberState& state_;
  const Time now_;
  std::vector<MemberAction> actions_;
};

void Turn::handle(const MemberStart&) {
  state_.started = now_;
  state_.next_report = now_ + kReportInterval;
  state_.back_off = kFirstBackOff;
  state_.phase = Phase::Dialing;
  actions_.emplace_back(Connect{});
}

void Turn::handle(const Connected&) {
  if (state_.phase != Phase::Dialing) return;
  state_.phase = Phase::Greeting;
  state_.answer_by = now_ + state_.spec.join.heartbeat_timeout;
  say(hello_of(state_.spec));
}

void Turn::handle(const ConnectFailed& failed) {
  if (state_.phase != Phase::Dialing) return;
  state_.closes_in_a_row = 0;
  rest("cannot be reached yet: " + failed.reason);
}

void Turn::handle(const WrongPeer& wrong) {
  if (state_.phase != Phase::Greeting) return connection_lost("it " + wrong.reason);
  end(NotRun{wrong_peer_error(state_, wrong.reason)});
}

void Turn::handle(const OtherCoordinator& other) {
  if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Joined}))
    end(NotRun{other.error});
}

void Turn::handle(const Heard& heard) {
  const bool is_connected = !is_in({Phase::Resting, Phase::Dialing, Phase::Ending, Phase::Ended});
  if (!is_connected) return;  // was still on its way when we disconnected
  state_.heard = now_;
  std::visit([this](const auto& message) { hear(message); }, heard.message);
}

void Turn::hear(const Welcome& welcome) {
  if (state_.phase != Phase::Greeting) return broken("a second welcome");
  state_.phase = Phase::Joined;
  state_.closes_in_a_row = 0;
  state_.back_off = kFirstBackOff;
  state_.heartbeat_timeout = std::max(welcome.heartbeat_timeout, Milliseconds(4));
  state_.next_ping = now_ + state_.heartbeat_timeout / 4;
}

void Turn::hear(const Waiting& waiting) {
  if (state_.phase != Phase::Joined) return;
  state_.waiting = waiting;
  log(LogLevel::Info, waiting_text(waiting, state_.endpoint, time_left()));
}

void Turn::hear(const Refused& refused) {
  if (!is_in({Phase::Greeting, Phase::Joined})) return broken("a refusal after the welcome");
  end(NotRun{refused.error});
}

void Turn::hear(const WorldReady& ready) {
  if (state_.phase == Phase::Leaving) {  // it crossed our signal: nothing is started
    state_.world = ready.world;
    return;
  }
  const JoinSpec& join = state_.spec.join;
  const bool is_next = state_.phase == Phase::Joined ||
                       (state_.phase == Phase::Stopped && ready.world.round > state_.world->round);
  const bool is_ours = ready.world.node_rank == join.node_rank &&
                       ready.world.local_world_size == join.local_world_size;
  if (!is_next || !is_ours) return broken("a world that is not ours");
  state_.phase = Phase::Running;
  state_.world = ready.world;
  state_.own_failures = FailureList();
  if (!state_.first_world) state_.first_world = now_;
  if (!join.master_addr.empty()) state_.world->master_addr = join.master_addr;
  if (join.master_port != 0) state_.world->master_port = join.master_port;
  actions_.emplace_back(StartWorkers{*state_.world});
}

void Turn::hear(const Stop& stop) {
  if (is_in({Phase::Greeting, Phase::Joined})) return broken("a stop before any world");
  if (!is_round(stop.round)) return;
  if (state_.phase == Phase::Leaving) {
    say(Stopped{.round = stop.round});
    return;
  }
  if (!is_in({Phase::Running, Phase::Done})) return;
  state_.phase = Phase::Stopping;
  log(LogLevel::Info, "stopping workers: " + stop.cause);
  actions_.emplace_back(StopWorkers{stop.round});
}

void Turn::hear(const Finish& finish) {
  if (state_.phase == Phase::Greeting) return broken("an outcome before the welcome");
  // Whoever is done, has stopped or never started has no workers left to wait for.
  if (is_in({Phase::Joined, Phase::Done, Phase::Stopped, Phase::Leaving}))
    return conclude(finish.outcome);
  end_once_stopped(finish.outcome);
}

void Turn::handle(const OwnFailure& own) {
  if (!is_round(own.failure.failure.round) || state_.phase != Phase::Running) return;
  state_.phase = Phase::Stopping;
  state_.own_failures.add(own.failure.failure, now_ - own.failure.age);
  AgedFailure brief = own.failure;
  brief.failure.message.clear();
  brief.failure.traceback.clear();
  brief.failure.stderr_tail.clear();
  say(Failed{brief.failure.round, std::move(brief)});
}

void Turn::handle(const OwnSuccess& own) {
  if (!is_round(own.round) || state_.phase != Phase::Running) return;
  state_.phase = Phase::Done;
  say(AllReturned{own.round});
}

void Turn::handle(const OwnStopped& own) {
  if (!is_round(own.round)) return;
  if (state_.phase == Phase::Running) {
    assert(!own.failures.empty());  // workers do not vanish
    handle(OwnFailure{own.failures.front()});
  }
  for (const AgedFailure& aged : own.failures)
    state_.own_failures.add(aged.failure, now_ - aged.age);
  if (state_.phase == Phase::Ending)
    return conclude(state_.outcome
                        ? *std::exchange(state_.outcome, std::nullopt)
                        : local_outcome(state_, lost_ending(state_, state_.last_trouble), now_));
  if (state_.phase != Phase::Stopping) return;
  state_.phase = Phase::Stopped;
  Stopped stopped{.round = own.round};
  for (const FailureList::Entry& entry : state_.own_failures.entries())
    stopped.failures.push_back(
        {entry.failure, std::chrono::duration_cast<Milliseconds>(now_ - entry.moment)});
  stopped.left_out = state_.own_failures.left_out();
  say(std::move(stopped));
  if (state_.signal) leave(std::nullopt);
}

void Turn::handle(const OwnSignal& own) {
  if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting}))
    return end(Interrupted{own.signal, state_.spec.join.node_rank, state_.spec.host});
  if (state_.signal || is_in({Phase::Ending, Phase::Ended})) return;
  state_.signal = own.signal;
  say(Signalled{own.signal});
  if (state_.phase == Phase::Joined) return leave(now_ + kLeaveLimit);
  if (state_.phase == Phase::Stopped) return leave(std::nullopt);
  if (!is_in({Phase::Running, Phase::Done})) return;
  state_.phase = Phase::Stopping;
  actions_.emplace_back(StopWorkers{state_.world->round});
}

void Turn::leave(std::optional<Time> by) {
  state_.phase = Phase::Leaving;
  state_.leave_by = by;
}

void Turn::handle(const MemberTick&) {
  const bool is_joining =
      is_in({Phase::Resting, Phase::Dialing, Phase::Greeting}) && now_ >= join_by();
  if (is_joining || (state_.phase == Phase::Joined && now_ >= join_by() + kTimeoutGrace))
    return end(NotRun{join_timeout_error(state_)});
  if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting})) report_trouble();
  if (state_.phase == Phase::Resting && now_ >= state_.retry_at) {
    state_.phase = Phase::Dialing;
    actions_.emplace_back(Connect{});
    return;
  }
  if (state_.phase == Phase::Greeting && now_ >= state_.answer_by)
    return end(NotRun{silence_error(state_)});
  if (state_.phase == Phase::Leaving && state_.leave_by && now_ >= *state_.leave_by)
    return end(lost_ending(state_, "no answer to a signal"));
  keep_alive();
}

void Turn::keep_alive() {
  const bool has_heartbeat = is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping,
                                    Phase::Stopped, Phase::Leaving});
  if (!has_heartbeat || now_ < state_.next_ping) return;
  const Time::duration interval = state_.heartbeat_timeout / 4;
  // Ticks come late when this process itself was held up (stopped, swapped out): what the
  // coordinator sent meanwhile has not been read yet.
  if (now_ - state_.next_ping > interval) state_.heard = now_;
  state_.next_ping = now_ + interval;
  if (now_ - state_.heard > state_.heartbeat_timeout) {
    actions_.emplace_back(Disconnect{});
    return connection_lost("no sign of life for " + duration_text(state_.heartbeat_timeout));
  }
  say(Ping{});
}

void Turn::report_trouble() {
  if (now_ < state_.next_report) return;
  state_.next_report = now_ + kReportInterval;
  log(LogLevel::Info, "waiting for the coordinator at " + state_.endpoint + ": it " +
                          (state_.last_trouble.empty() ? std::string("has not answered yet")
                                                       : state_.last_trouble) +
                          "; " + duration_text(time_left()) + " left");
}

void Turn::rest(std::string trouble) {
  state_.phase = Phase::Resting;
  state_.last_trouble = std::move(trouble);
  state_.retry_at = now_ + state_.back_off;
  state_.back_off = std::min(state_.back_off * 2, kMostBackOff);
  log(LogLevel::Debug, state_.endpoint + " " + state_.last_trouble);
}

void Turn::connection_lost(const std::string& reason) {
  switch (state_.phase) {
    case Phase::Resting:
    case Phase::Ending:
    case Phase::Ended:
      return;
    case Phase::Dialing:
      return rest(reason);
    case Phase::Greeting:
      return closed_without_a_word(reason);
    case Phase::Joined:
      log(LogLevel::Warning, "lost the coordinator at " + state_.endpoint +
                                 " before the world was complete: " + reason +
                                 "; trying to join again");
      return rest("was lost: " + reason);
    case Phase::Leaving:
      return end(lost_ending(state_, reason));
    case Phase::Running:
    case Phase::Done:
    case Phase::Stopping:
    case Phase::Stopped:
      break;
  }
  log(LogLevel::Error, "lost the coordinator at " + state_.endpoint + ": " + reason);
  state_.last_trouble = reason;
  end_once_stopped(std::nullopt);
}

// A coordinator may be just dying, or a proxy may stand before one that is not up yet: only a
// habit of closing is taken for an answer.
void Turn::closed_without_a_word(const std::string& reason) {
  if (state_.closes_in_a_row++ == 0) state_.first_close = now_;
  const bool is_habit = state_.closes_in_a_row >= kMostCloses &&
                        now_ - state_.first_close >= state_.spec.join.heartbeat_timeout / 3;
  if (!is_habit) return rest("closes connections without a word (" + reason + ")");
  end(NotRun{closing_error(state_, reason)});
}

void Turn::broken(const std::string& what) {
  actions_.emplace_back(Disconnect{});
  connection_lost("it broke the control protocol (" + what + ")");
}

void Turn::end(Ending ending) { conclude(local_outcome(state_, std::move(ending), now_)); }

// Own workers first: the outcome is the last that is heard of a job.
void Turn::end_once_stopped(std::optional<Outcome> outcome) {
  if (is_in({Phase::Running, Phase::Done})) actions_.emplace_back(StopWorkers{state_.world->round});
  const bool has_stopped = state_.phase == Phase::Stopped;
  state_.phase = Phase::Ending;
  state_.outcome = std::move(outcome);
  if (has_stopped) handle(OwnStopped{state_.world->round, {}});
}

void Turn::conclude(Outcome outcome) {
  state_.phase = Phase::Ended;
  actions_.emplace_back(Disconnect{});
  actions_.emplace_back(End{std::move(outcome)});
}

}  // namespace

Hello hello_of(const MemberSpec& spec) {
  return {.run_id = spec.join.run_id,
          .node_rank = spec.join.node_rank,
          .node_count = spec.join.node_count,
          .local_world_size = spec.join.local_world_size,
          .role = spec.join.role,
          .host = spec.host,
          .pid = spec.pid,
          .instance = spec.instance};
}

MemberState new_member(MemberSpec spec) {
  MemberState state;
  state.endpoint = to_string(spec.join.endpoint);
  state.spec = std::move(spec);
  return state;
}

std::vector<MemberAction> step(MemberState& state, const MemberEvent& event, Time now) {
  Turn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  return turn.take_actions();
}

std::optional<Time> deadline(const MemberState& state) {
  const Time join_by = state.started + state.spec.join.join_timeout;
  switch (state.phase) {
    case Phase::Resting:
      return std::min({state.retry_at, join_by, state.next_report});
    case Phase::Dialing:
      return std::min(join_by, state.next_report);
    case Phase::Greeting:
      return std::min({state.answer_by, join_by, state.next_report});
    case Phase::Joined:
      return std::min(state.next_ping, join_by + kTimeoutGrace);
    case Phase::Leaving:
      return state.leave_by ? std::min(state.next_ping, *state.leave_by) : state.next_ping;
    case Phase::Running:
    case Phase::Done:
    case Phase::Stopping:
    case Phase::Stopped:
      return state.next_ping;
    case Phase::Ending:
    case Phase::Ended:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace drun::rendezvous
