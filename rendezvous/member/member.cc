#include "rendezvous/member/member.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/member/local_outcome.h"
#include "rendezvous/protocol/membership_text.h"
#include "rendezvous/ranks/silent_ranks.h"

namespace drun::rendezvous {

namespace {

using Phase = MemberPhase;

constexpr Milliseconds kLeaveLimit{2000};
// Of a member without a welcome: that may be another program's port.
constexpr Milliseconds kEarlyLeaveLimit{500};
constexpr std::size_t kMostRestartsKept = std::size_t{1} << 16;

constexpr Milliseconds kFirstBackOff{50};
constexpr Milliseconds kMostBackOff{1000};
// With several endpoints, each attempt asks the next one.
constexpr Milliseconds kMostBackOffAmongSeats{250};
// A log line about a wait follows this long after its beginning, after the first line, and after
// each further one.
constexpr std::array<std::chrono::seconds, 3> kReportPauses{
    std::chrono::seconds(10), std::chrono::seconds(50), std::chrono::minutes(5)};
// The coordinator says at least this often which nodes are missing.
constexpr std::chrono::seconds kBetweenRollCalls{10};
// Longer than the coordinator's timeout, which has the better message.
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

// The time limit for the first connection to a coordinator.
std::optional<Time> reach_by(const MemberState& state) {
  const Milliseconds limit = state.spec.join.reach_timeout;
  const bool is_trying = state.phase == Phase::Resting || state.phase == Phase::Dialing ||
                         state.phase == Phase::Greeting;
  const bool has_reached = state.has_reached || state.has_been_welcome;
  if (limit == Milliseconds(0) || has_reached || !is_trying) return std::nullopt;
  return state.started + limit;
}

// The time limit for joining, or for joining again.
Time join_by(const MemberState& state) {
  return state.rejoin_by.value_or(state.started + state.spec.join.join_timeout);
}

// From now on there are at least that many restarts.
void remember_restarts(Memory& memory, int restarts, Time now) {
  const std::size_t known =
      std::min(static_cast<std::size_t>(std::max(restarts, 0)), kMostRestartsKept);
  while (memory.restarts.size() < known) memory.restarts.push_back(now);
}

Past past_of(const Memory& memory, const World& world, Time first_world, Time now) {
  const auto age = [now](Time then) {
    return std::chrono::duration_cast<Milliseconds>(now - then);
  };
  Past past{.rounds = memory.rounds,
            .node_count = world.node_count,
            .age = age(first_world),
            .coordinator = memory.coordinator,
            .restarts = static_cast<int>(memory.restarts.size()),
            .records = memory.records,
            .is_checked = memory.is_checked};
  const std::size_t told = std::min(memory.restarts.size(), kMostRestartsTold);
  for (std::size_t i = memory.restarts.size() - told; i < memory.restarts.size(); ++i)
    past.restart_ages.push_back(age(memory.restarts[i]));
  return past;
}

// A ping is due, or the coordinator has been silent for too long.
Time next_heartbeat(const MemberState& state) {
  return std::min(state.next_ping, state.heard + state.heartbeat_timeout);
}

}  // namespace

// One step of the member's state machine. Collects the actions that the event causes.
class MemberTurn {
 public:
  MemberTurn(MemberState& state, Time now) : state_(state), now_(now) {}

  void handle(const Query& query) {
    const bool is_about_workers = query.kind != QueryKind::Status;
    if (is_in({Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped}) ||
        (state_.phase == Phase::Joined && !is_about_workers))
      return send(query);
    if (state_.phase == Phase::Ended) return;
    std::string note = "this node is not in touch with its job";
    if (is_in({Phase::Leaving, Phase::Ending})) note = "this node leaves the job";
    if (is_about_workers && !state_.world) note = "no workers run yet";
    actions_.emplace_back(QueryResult{query.number, std::move(note)});
  }

  void handle(const NodeAnswer& given) {
    if (has_coordinator() || state_.phase == Phase::Leaving) send(given);
  }

  void receive(const NodeQuery& query) {
    if (state_.phase == Phase::Greeting) return broken("a question before the welcome");
    actions_.emplace_back(query);
  }

  void handle(const OwnTimes& own) {
    if (has_coordinator()) send(TimesReport{own.times});
  }

  void handle(const OwnSuspicion& own) {
    if (!is_round(own.round) || state_.phase != Phase::Running) return;
    for (std::vector<SuspectGroup>& groups : suspect_messages(own.suspects))
      send(HangSuspected{own.round, own.settle, std::move(groups)});
  }

  void receive(const HangFound& found) {
    if (is_round(found.round) && is_in({Phase::Running, Phase::Done, Phase::Stopping}))
      actions_.emplace_back(ShowHang{found});
  }

  // --- Leader search, with several endpoints or etcd

  void aim(const Endpoint& endpoint) {
    JoinSpec& join = state_.spec.join;
    join.endpoint = endpoint;
    join.is_coordinator = join.seat && join.seats[*join.seat] == endpoint;
    state_.endpoint = to_string(endpoint);
  }

  // The agent's own seat is asked first: it answers once it knows the leader.
  void aim_at_next() {
    const JoinSpec& join = state_.spec.join;
    state_.seeking.was_sent_on = false;
    if (join.seat) return aim(join.seats[*join.seat]);
    aim(join.seats[state_.seeking.next++ % join.seats.size()]);
  }

  void dial() {
    state_.phase = Phase::Dialing;
    state_.answer_by = now_ + patience();
    actions_.emplace_back(Connect{});
  }

  // Nothing listens there, or it does not know the leader.
  void ask_elsewhere(std::string trouble) {
    LeaderSearch& seeking = state_.seeking;
    // The named leader does not lead anymore, or cannot be reached from here: try the next seat.
    if (seeking.was_sent_on) seeking.lost_term = seeking.term;
    actions_.emplace_back(Disconnect{});
    rest(std::move(trouble));
  }

  void receive(const Follow& follow) {
    if (state_.phase != Phase::Greeting || !has_seats()) return broken("a word of who leads");
    LeaderSearch& seeking = state_.seeking;
    // At least this one of several endpoints is right. With etcd, this agent itself reported it.
    if (!state_.spec.join.etcd) seeking.wrong_answers = 0;
    const Endpoint leader{follow.host, follow.port};
    if (seeking.was_sent_on || leader.port == 0)
      return ask_elsewhere("does not lead, and names " + to_string(leader));
    actions_.emplace_back(Disconnect{});
    log(LogLevel::Debug, state_.endpoint + " says that " + to_string(leader) + " coordinates");
    aim(leader);
    seeking.was_sent_on = true;
    seeking.term = follow.term;
    dial();
  }

  void receive(const Remember& told) {
    if (!is_elastic() || state_.phase == Phase::Greeting)
      return broken("what to remember, before the welcome");
    for (const NodeRecord& record : told.records) note_record(state_.memory.records, record);
    remember_restarts(state_.memory, told.restarts, now_);
  }

  void handle(const LeaderNamed& named) {
    if (!has_seats() || !has_coordinator() || named.term <= state_.seeking.term) return;
    actions_.emplace_back(Disconnect{});
    connection_lost(to_string(named.endpoint) + " coordinates now");
  }

  void handle(const LeaderUnknown& unknown) {
    state_.etcd_trouble = unknown.reason;
    if (!unknown.reason.empty())
      state_.next_report = std::min(state_.next_report, now_ + std::chrono::seconds(1));
  }

  void handle(const Heard& heard) {
    const bool is_connected = !is_in({Phase::Resting, Phase::Dialing, Phase::Ending, Phase::Ended});
    if (!is_connected) return;  // sent before the disconnect
    state_.heard = now_;
    std::visit([this](const auto& message) { receive(message); }, heard.message);
  }

  void receive(const Welcome& welcome) {
    if (!std::exchange(state_.awaits_welcome, false)) return broken("a second welcome");
    if (state_.phase != Phase::Leaving) state_.phase = Phase::Joined;
    if (state_.world) begin_wait(std::chrono::seconds(0));
    state_.has_been_welcome = true;
    state_.rejoin_by.reset();
    state_.seeking = {.next = state_.seeking.next, .term = welcome.term};
    state_.heartbeat_timeout = std::max(welcome.heartbeat_timeout, Milliseconds(4));
    state_.next_ping = now_ + state_.heartbeat_timeout / 4;
  }

  void receive(const Waiting& waiting) {
    if (!is_in({Phase::Joined, Phase::Stopped})) return;
    state_.waiting = waiting;
    const JoinSpec& join = state_.spec.join;
    // A spare gets it once in each round.
    const bool is_due = waiting.is_spare || is_report_due(now_ + kBetweenRollCalls / 2);
    const bool has_progress = join.shows_progress && join.is_coordinator;
    log(is_due && !has_progress ? LogLevel::Info : LogLevel::Debug,
        is_elastic() ? elastic_waiting_text(waiting, state_.endpoint)
                     : waiting_text(waiting, state_.endpoint, time_left()));
  }

  void receive(const Refused& refused) {
    if (!is_in({Phase::Greeting, Phase::Joined})) return broken("a refusal after the welcome");
    give_up(refused.error);
  }

  void receive(const WorldReady& ready) {
    if (state_.phase == Phase::Leaving) {  // sent before the signal arrived: start nothing
      if (state_.awaits_welcome) return broken("a world before the welcome");
      state_.world = ready.world;
      state_.leave_by.reset();  // the coordinator is alive, so an outcome follows
      return;
    }
    const JoinSpec& join = state_.spec.join;
    const bool is_next = state_.phase == Phase::Joined || (state_.phase == Phase::Stopped &&
                                                           ready.world.round > state_.world->round);
    const bool is_ours = (is_elastic() || ready.world.node_rank == join.node_rank) &&
                         ready.world.local_world_size == join.local_world_size;
    if (!is_next || !is_ours) return broken("a world that is not ours");
    state_.phase = Phase::Running;
    state_.world = ready.world;
    state_.own_failures = FailureList();
    if (!state_.first_world) state_.first_world = now_;
    if (is_elastic()) {
      state_.memory.rounds = std::max(state_.memory.rounds, ready.world.round + 1);
      state_.memory.coordinator = join.endpoint.host;
      if (!ready.world.is_preflight) state_.memory.is_checked = true;
      remember_restarts(state_.memory, ready.world.restarts, now_);
    }
    if (const KnownAddresses* known = find_addresses(join.book, join.endpoint)) {
      // The address that works from here. The coordinator's own agent is connected over loopback.
      state_.world->master_addr = join.is_coordinator ? known->addresses.front() : state_.address;
    } else if (!join.master_addr.empty()) {
      state_.world->master_addr = join.master_addr;
    }
    if (join.master_port != 0) state_.world->master_port = join.master_port;
    actions_.emplace_back(StartWorkers{*state_.world});
  }

  void receive(const Stop& stop) {
    if (is_in({Phase::Greeting, Phase::Joined})) return broken("a stop before any world");
    if (!is_round(stop.round)) return;
    if (state_.phase == Phase::Leaving) {
      send(Stopped{.round = stop.round});
      return;
    }
    if (!is_in({Phase::Running, Phase::Done})) return;
    state_.phase = Phase::Stopping;
    // One line per job at the default level. A node whose worker failed is stopping already.
    const bool is_first_node = state_.world->node_rank == 0;
    log(is_first_node ? LogLevel::Info : LogLevel::Debug, "stopping workers: " + stop.cause);
    actions_.emplace_back(StopWorkers{stop.round, stop.notice});
  }

  void receive(const Finish& finish) {
    if (state_.phase == Phase::Greeting) return broken("an outcome before the welcome");
    // A node that is done, has stopped or never started has no workers left to wait for.
    if (is_in({Phase::Joined, Phase::Done, Phase::Stopped, Phase::Leaving}))
      return conclude(finish.outcome);
    end_once_stopped(finish.outcome);
  }

  void receive(const NodeLeftOut& told) {
    if (!is_elastic() || state_.phase == Phase::Greeting)
      return broken("a node left out of a world that has no line");
    if (has_coordinator()) actions_.emplace_back(ShowLeftOut{told.node});
  }

  void receive(const FaultInjected& told) {
    if (state_.phase == Phase::Greeting) return broken("a fault before the welcome");
    actions_.emplace_back(ShowFault{told.fault});
  }

  void handle(const OwnSpeed& own) {
    if (state_.phase == Phase::Running && is_round(own.round))
      send(SpeedReport{own.round, own.speed});
  }

  // Shown by the listener's on_message.
  void receive(const SlowFound&) {
    if (state_.phase == Phase::Greeting) broken("a slow rank before the welcome");
  }

  // Without a coordinator there is no one to notify.
  void handle(const OwnFault& own) {
    if (has_coordinator()) send(FaultInjected{own.fault});
  }

  void receive(const LivenessCheck& check) {
    if (state_.phase == Phase::Greeting) return broken("a liveness check before the welcome");
    send(LivenessReply{check.check});
  }

  void handle(const OwnFailure& own) {
    if (!is_round(own.failure.failure.round) || state_.phase != Phase::Running) return;
    state_.phase = Phase::Stopping;
    state_.own_failures.add(own.failure.failure, now_ - own.failure.age);
    send(Failed{own.failure.failure.round, {brief(own.failure.failure), own.failure.age}});
  }

  void handle(const OwnSuccess& own) {
    if (!is_round(own.round) || state_.phase != Phase::Running) return;
    state_.phase = Phase::Done;
    send(AllReturned{own.round});
  }

  void handle(const OwnStopped& own) {
    if (!is_round(own.round)) return;
    if (state_.phase == Phase::Running) {
      assert(!own.failures.empty());  // workers do not vanish
      handle(OwnFailure{own.failures.front()});
    }
    for (const AgedFailure& aged : own.failures)
      state_.own_failures.add(aged.failure, now_ - aged.age);
    state_.unusable = own.unusable;
    if (state_.phase == Phase::Parting)
      return state_.signal ? end(lost_ending(state_, *state_.lost_reason)) : rejoin();
    if (state_.phase == Phase::Ending)
      return conclude(state_.outcome
                          ? *std::exchange(state_.outcome, std::nullopt)
                          : local_outcome(state_, lost_ending(state_, state_.last_trouble), now_));
    if (state_.phase != Phase::Stopping) return;
    state_.phase = Phase::Stopped;
    begin_wait(std::chrono::seconds(0));
    Stopped stopped{.round = own.round};
    for (const FailureList::Entry& entry : state_.own_failures.entries())
      stopped.failures.push_back(
          {entry.failure,
           std::chrono::duration_cast<std::chrono::microseconds>(now_ - entry.moment)});
    stopped.left_out = state_.own_failures.left_out();
    stopped.unusable = state_.unusable;
    stopped.progress = own.progress;
    send(std::move(stopped));
    if (state_.signal) leave(std::nullopt);
  }

  void handle(const OwnSignal& own) {
    // The coordinator may have counted this node already, and a world may be on its way. But a
    // seat that does not lead answers only once it knows the leader.
    const bool may_be_member = state_.phase == Phase::Greeting && !has_seats();
    if (is_searching() && !may_be_member)
      return end(Interrupted{own.signal, own_rank(state_), state_.spec.host});
    if (state_.signal || is_in({Phase::Ending, Phase::Ended})) return;
    state_.signal = own.signal;
    if (state_.phase == Phase::Parting) return;
    send(Signaled{own.signal});
    if (may_be_member) return leave(now_ + kEarlyLeaveLimit);
    if (state_.phase == Phase::Joined) return leave(now_ + kLeaveLimit);
    if (state_.phase == Phase::Stopped) return leave(std::nullopt);
    if (!is_in({Phase::Running, Phase::Done})) return;
    state_.phase = Phase::Stopping;
    actions_.emplace_back(StopWorkers{state_.world->round});
  }

  void leave(std::optional<Time> by) {
    state_.phase = Phase::Leaving;
    state_.leave_by = by;
  }

  void end(Ending ending) { conclude(local_outcome(state_, std::move(ending), now_)); }

  // Stops own workers first, because the outcome is the last action.
  void end_once_stopped(std::optional<Outcome> outcome) {
    if (is_in({Phase::Running, Phase::Done}))
      actions_.emplace_back(StopWorkers{state_.world->round});
    const bool has_stopped = state_.phase == Phase::Stopped;
    state_.phase = Phase::Ending;
    state_.outcome = std::move(outcome);
    if (has_stopped) handle(OwnStopped{state_.world->round, {}});
  }

  void conclude(Outcome outcome) {
    state_.phase = Phase::Ended;
    actions_.emplace_back(Disconnect{});
    actions_.emplace_back(End{std::move(outcome)});
  }

  // --- Connection to the coordinator

  void handle(const MemberStart&) {
    state_.started = now_;
    begin_wait(kReportPauses.front());
    state_.back_off = kFirstBackOff;
    if (has_seats()) aim_at_next();
    dial();
  }

  void handle(const Connected& connected) {
    if (state_.phase != Phase::Dialing) return;
    state_.phase = Phase::Greeting;
    state_.awaits_welcome = true;
    state_.address = connected.address;
    // This agent's own seat is always there, and answers once it has reached others.
    const JoinSpec& join = state_.spec.join;
    state_.has_reached = !join.seat || !join.is_coordinator;
    state_.answer_by = now_ + (has_seats() ? patience() : join.heartbeat_timeout);
    Hello hello = hello_of(state_.spec);
    hello.lost_term = state_.seeking.lost_term;
    if (is_elastic() && state_.world && state_.first_world) {
      hello.past = past_of(state_.memory, *state_.world, *state_.first_world, now_);
      if (!state_.own_failures.empty()) hello.past->failure = first_own_failure();
    }
    send(std::move(hello));
  }

  void handle(const ConnectFailed& failed) {
    if (state_.phase != Phase::Dialing) return;
    // A coordinator that was reached before and does not listen anymore is dead.
    if (has_seats()) return ask_elsewhere(std::string(kNotReached) + failed.reason);
    if (state_.rejoin_by && failed.is_refused) return end(lost_ending(state_, *state_.lost_reason));
    rest(std::string(kNotReached) + failed.reason);
  }

  void handle(const WrongPeer& wrong) {
    if (state_.phase != Phase::Greeting) return connection_lost("it " + wrong.reason);
    if (wrong.is_one_of_several) {
      state_.has_reached = false;
      return has_seats() ? ask_elsewhere(wrong.reason) : rest(wrong.reason);
    }
    if (has_seats() && ++state_.seeking.wrong_answers < most_wrong_answers())
      return ask_elsewhere(wrong.reason);
    give_up(wrong_peer_error(state_, wrong.reason));
  }

  void handle(const OtherCoordinator& other) {
    if (is_in({Phase::Resting, Phase::Dialing, Phase::Greeting, Phase::Joined}))
      end(NotRun{other.error});
  }

  void handle(const MemberTick&) {
    const bool is_joining = is_searching() && now_ >= join_by(state_);
    // The coordinator of an elastic world applies this timeout itself; spares wait without a limit.
    const bool is_overdue =
        state_.phase == Phase::Joined && !is_elastic() && now_ >= join_by(state_) + kTimeoutGrace;
    if (is_joining && state_.rejoin_by) return end(lost_ending(state_, *state_.lost_reason));
    if (is_joining || is_overdue) return give_up(join_timeout_error(state_));
    if (const auto by = reach_by(state_); by && now_ >= *by)
      return end(NotRun{reach_timeout_error(state_)});
    if (is_searching()) report_trouble();
    if (state_.phase == Phase::Resting && now_ >= state_.retry_at) {
      dial();
      return;
    }
    const bool is_unanswered = has_seats() && is_in({Phase::Dialing, Phase::Greeting});
    if (is_unanswered && now_ >= state_.answer_by) {
      // The seat knows no later leader, so the lost one may still lead.
      if (state_.phase == Phase::Greeting) state_.seeking.lost_term = 0;
      return ask_elsewhere("has not answered");
    }
    if (state_.phase == Phase::Greeting && now_ >= state_.answer_by) return no_answer();
    if (state_.phase == Phase::Leaving && state_.leave_by && now_ >= *state_.leave_by)
      return end(lost_ending(state_, "no answer to a signal"));
    keep_alive();
  }

  void keep_alive() {
    const bool is_welcome = !state_.awaits_welcome;
    const bool has_heartbeat = has_coordinator() || (state_.phase == Phase::Leaving && is_welcome);
    const Time wanted = next_heartbeat(state_);
    if (!has_heartbeat || now_ < wanted) return;
    const Time::duration interval = state_.heartbeat_timeout / 4;
    // A late tick means that this process was delayed (stopped, swapped out): messages that the
    // coordinator sent meanwhile have not been read yet.
    if (now_ - wanted > interval) state_.heard = now_;
    if (now_ - state_.heard >= state_.heartbeat_timeout) {
      actions_.emplace_back(Disconnect{});
      return connection_lost("no sign of life for " + duration_text(state_.heartbeat_timeout));
    }
    if (now_ < state_.next_ping) return;
    state_.next_ping = now_ + interval;
    send(Ping{});
  }

  void report_trouble() {
    if (!is_report_due(now_)) return;
    log(LogLevel::Info, waiting_for_text(state_) + "; " + duration_text(time_left()) + " left");
  }

  void begin_wait(std::chrono::seconds first_report) {
    state_.report_count = 0;
    state_.next_report = now_ + first_report;
  }

  // True: the caller logs what it waits for. With `by` later than now, also shortly before the
  // time.
  bool is_report_due(Time by) {
    if (by < state_.next_report) return false;
    state_.report_count = std::min(state_.report_count + 1, kReportPauses.size() - 1);
    state_.next_report = now_ + kReportPauses[state_.report_count];
    return true;
  }

  // An elastic world continues without this node, which may rejoin as the same member.
  void part(const std::string& reason) {
    log(LogLevel::Warning, "lost the coordinator at " + state_.endpoint + ": " + reason +
                               "; stopping workers and trying to join again");
    state_.lost_reason = reason;
    if (state_.phase == Phase::Stopped) return rejoin();
    if (is_in({Phase::Running, Phase::Done}))
      actions_.emplace_back(StopWorkers{state_.world->round});
    state_.phase = Phase::Parting;
  }

  void rejoin() {
    if (!state_.unusable.empty())
      return end(lost_ending(
          state_, *state_.lost_reason + "; this node does not join again: " + state_.unusable));
    state_.rejoin_by =
        now_ + (has_seats() ? state_.spec.join.join_timeout : state_.heartbeat_timeout);
    state_.seeking.lost_term = state_.seeking.term;
    state_.back_off = kFirstBackOff;
    begin_wait(kReportPauses.front());
    rest("was lost: " + *state_.lost_reason);
  }

  // Before the first world the job has not run here; after one its coordinator is lost.
  void give_up(Error error) {
    if (!state_.rejoin_by) return end(NotRun{std::move(error)});
    end(lost_ending(state_, *state_.lost_reason + "; then " + error.message));
  }

  void rest(std::string trouble) {
    state_.phase = Phase::Resting;
    state_.last_trouble = std::move(trouble);
    state_.retry_at = now_ + jittered(state_.back_off);
    state_.back_off =
        std::min(state_.back_off * 2, has_seats() ? kMostBackOffAmongSeats : kMostBackOff);
    log(LogLevel::Debug, state_.endpoint + " " + state_.last_trouble);
    if (has_seats()) aim_at_next();
  }

  void connection_lost(const std::string& reason) { handle(ConnectionLost{reason}); }

  void handle(const ConnectionLost& lost) {
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
        actions_.emplace_back(AvoidAddress{});
        if (has_seats()) return ask_elsewhere("closed the connection (" + reason + ")");
        return rest(closing_text(lost));
      case Phase::Joined:
        log(LogLevel::Warning, "lost the coordinator at " + state_.endpoint +
                                   " before the world was complete: " + reason +
                                   "; trying to join again");
        // Later than that, as a spare, it has a heartbeat timeout to join again.
        if (!has_seats() && (!is_elastic() || now_ + state_.heartbeat_timeout < join_by(state_))) {
          begin_wait(kReportPauses.front());
          return rest("was lost: " + reason);
        }
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

  void no_answer() {
    actions_.emplace_back(AvoidAddress{});
    actions_.emplace_back(Disconnect{});
    rest("accepts connections but has not answered for " +
         duration_text(state_.spec.join.heartbeat_timeout) +
         ": the coordinator is overloaded, or another program uses that port");
  }

  // Many members that lost one coordinator must not reconnect all at once.
  Time::duration jittered(Milliseconds longest) {
    constexpr unsigned kSteps = 1024;
    const Time::duration half = Time::duration(longest) / 2;
    return half + half * (state_.jitter() % (kSteps + 1)) / kSteps;
  }

  void broken(const std::string& what) {
    actions_.emplace_back(Disconnect{});
    connection_lost("it broke the control protocol (" + what + ")");
  }

  std::vector<MemberAction> take_actions() { return std::move(actions_); }
  void receive(const Pong&) {}
  void receive(const LinesTaken&) {}  // handled by Client's LineListener
  void receive(const QueryResult& result) { actions_.emplace_back(result); }
  void receive(const Vote&) { broken("a vote"); }

  bool is_in(std::initializer_list<MemberPhase> phases) const {
    return std::find(phases.begin(), phases.end(), state_.phase) != phases.end();
  }

  // It has no coordinator yet, or not again.
  bool is_searching() const { return is_in({Phase::Resting, Phase::Dialing, Phase::Greeting}); }
  bool has_coordinator() const {
    return is_in({Phase::Joined, Phase::Running, Phase::Done, Phase::Stopping, Phase::Stopped});
  }
  bool is_elastic() const { return state_.spec.join.elastic.has_value(); }
  bool has_seats() const { return !state_.spec.join.seats.empty(); }

  // The leader that etcd named may have ended since, and another program may have its port.
  std::size_t most_wrong_answers() const {
    return std::max<std::size_t>(state_.spec.join.seats.size(), state_.spec.join.etcd ? 3 : 1);
  }

  // How long to wait for one endpoint of several.
  Milliseconds patience() const {
    return std::min<Milliseconds>(state_.spec.join.heartbeat_timeout / 2, std::chrono::seconds(5));
  }

  bool is_round(int round) const { return state_.world && state_.world->round == round; }

  // Its age counts from now. Requires that there is one.
  AgedFailure first_own_failure() const {
    const FailureList::Entry& first = state_.own_failures.entries().front();
    return {short_failure(first.failure),
            std::chrono::duration_cast<std::chrono::microseconds>(now_ - first.moment)};
  }

  Milliseconds time_left() const {
    return std::max(Milliseconds(0),
                    std::chrono::duration_cast<Milliseconds>(join_by(state_) - now_));
  }

  void send(MemberMessage message) { actions_.emplace_back(SendToCoordinator{std::move(message)}); }

  void log(LogLevel level, std::string text) {
    actions_.emplace_back(LogLine{level, std::move(text)});
  }

 private:
  MemberState& state_;
  const Time now_;
  std::vector<MemberAction> actions_;
};

Hello hello_of(const MemberSpec& spec) {
  const JoinSpec& join = spec.join;
  const bool is_elastic = join.elastic.has_value();
  return {.run_id = spec.join.run_id,
          .node_rank = is_elastic ? std::nullopt : std::optional(join.node_rank),
          .node_count = spec.join.node_count,
          .local_world_size = spec.join.local_world_size,
          .role = spec.join.role,
          .host = spec.host,
          .pid = spec.pid,
          .instance = spec.instance,
          .min_node_count = is_elastic ? join.elastic->min_nodes : join.node_count,
          .slot = join.slot,
          .is_coordinator = is_elastic && join.is_coordinator,
          .addresses = join.secret ? join.addresses : std::vector<std::string>(),
          .gathers = join.gathers_lines,
          .roles = join.roles};
}

MemberState new_member(MemberSpec spec) {
  MemberState state;
  state.endpoint = to_string(spec.join.endpoint);
  state.spec = std::move(spec);
  state.jitter.seed(
      static_cast<std::minstd_rand::result_type>(state.spec.instance % std::minstd_rand::modulus));
  return state;
}

std::vector<MemberAction> step(MemberState& state, const MemberEvent& event, Time now) {
  MemberTurn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  return turn.take_actions();
}

std::optional<Time> deadline(const MemberState& state) {
  const Time wait_until =
      std::min({join_by(state), reach_by(state).value_or(Time::max()), state.next_report});
  switch (state.phase) {
    case Phase::Resting:
      return std::min(state.retry_at, wait_until);
    case Phase::Dialing:
      return state.spec.join.seats.empty() ? wait_until : std::min(state.answer_by, wait_until);
    case Phase::Greeting:
      return std::min(state.answer_by, wait_until);
    case Phase::Joined:
      if (state.spec.join.elastic) return next_heartbeat(state);
      return std::min(next_heartbeat(state), join_by(state) + kTimeoutGrace);
    case Phase::Leaving:
      if (state.awaits_welcome) return state.leave_by;
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
