#include "launcher/hosts/launching.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/exit_code.h"

namespace drun::hosts {
namespace {

using Phase = Launching::Phase;

class Step {
 public:
  Step(Launching& state, Time now) : state_(state), now_(now) {}

  std::vector<Action> run(const Event& event) {
    std::visit([this](const auto& each) { take(each); }, event);
    if (state_.phase == Phase::Starting) settle();
    return std::move(actions_);
  }

 private:
  HostProgress& host(std::size_t index) { return state_.hosts.at(index); }

  template <typename Deed>
  void each(std::initializer_list<HostState> states, Deed deed) {
    for (std::size_t i = 0; i < state_.hosts.size(); ++i)
      if (std::find(states.begin(), states.end(), host(i).state) != states.end()) deed(i);
  }
  bool has(std::initializer_list<HostState> states) {
    bool found = false;
    each(states, [&found](std::size_t) { found = true; });
    return found;
  }

  void take(const Began&) { state_.remind_at = now_ + kReminder; }

  void take(const HelloCame& event) {
    HostProgress& from = host(event.host);
    if (from.state != HostState::LoggingIn) return;
    if (event.hello.protocol != kProtocol) {
      from.problem = "another version of drun is installed there (" + event.hello.version +
                     "); install the same on all hosts";
      from.problem_code = kRendezvousRefused;
    } else if (!event.hello.problem.empty()) {
      from.problem = event.hello.problem;
      from.problem_code = event.hello.exit_code == 0 ? kSystemError : event.hello.exit_code;
    }
    from.state = from.problem.empty() ? HostState::Ready : HostState::Leaving;
    if (from.state == HostState::Leaving) actions_.emplace_back(LetGo{event.host});
  }

  void take(const EndCame& event) {
    host(event.host).end = event.end;
    const bool is_first = !state_.said_last;
    if (is_first || !is_about_itself(event.end) || is_about_itself(*said_last().end))
      state_.said_last = event.host;
  }

  HostProgress& said_last() { return host(*state_.said_last); }

  // A node that has lost the others cannot say how the job ended, unless all say so.
  static bool is_about_itself(const End& end) {
    return end.exit_code == kNodeLost || end.exit_code == kRendezvousTimeout ||
           end.exit_code == kRendezvousRefused;
  }

  void take(const SessionEnded& event) {
    HostProgress& from = host(event.host);
    const HostState before = std::exchange(from.state, HostState::Ended);
    from.code = event.code;
    if (state_.phase == Phase::Starting && before != HostState::Leaving)
      return note_early_end(from, event);
    if (state_.phase != Phase::Running) return;
    if (state_.least_hosts > 0) return note_lost(event.host, before);
    if (event.host == 0) {
      state_.end_by = now_ + kEndGrace;
      if (!from.end) each({HostState::Running}, [this](std::size_t i) { let_go(i); });
    } else if (host(0).state == HostState::Running && !state_.left_early) {
      state_.left_early = event.host;
      state_.end_node_0_at = now_ + kEndGrace;
    }
  }

  void note_lost(std::size_t index, HostState before) {
    const HostProgress& from = host(index);
    const bool is_over = state_.said_last && !is_about_itself(*said_last().end);
    if (is_over && !state_.end_by) state_.end_by = now_ + kEndGrace;
    if (!from.end && before == HostState::Running && !is_over && !state_.signal)
      actions_.emplace_back(GoWithout{index, ""});
  }

  static void note_early_end(HostProgress& from, const SessionEnded& event) {
    from.problem = event.words;
    if (from.problem.empty())
      from.problem = "ssh ended with exit code " + std::to_string(event.code) + ", without a word";
    const bool is_program = event.code == kNotFound || event.code == kNotExecutable;
    from.problem_code = event.code == kSshFailed ? kRendezvousTimeout
                        : is_program             ? event.code
                                                 : kRendezvousRefused;
  }

  void take(const SignalCame& event) {
    if (state_.signal) return;
    state_.signal = event.signal;
    if (state_.phase != Phase::Running) return give_up();
    const std::string line = "signal " + std::to_string(event.signal);
    if (host(0).state == HostState::Running && state_.least_hosts == 0) {
      actions_.emplace_back(Say{0, line});
    } else {
      each({HostState::Running}, [&](std::size_t i) { actions_.emplace_back(Say{i, line}); });
    }
  }

  void take(const KillCame&) {
    if (state_.phase != Phase::Running) return kill_all();
    each({HostState::Running}, [this](std::size_t i) { actions_.emplace_back(Say{i, "kill"}); });
    state_.end_by = now_ + kEndGrace;
  }

  void take(const PassOn& event) {
    const std::string line = "pass " + std::to_string(event.signal);
    each({HostState::Running}, [&](std::size_t i) { actions_.emplace_back(Say{i, line}); });
  }

  void take(const Woken&) {
    if (state_.remind_at && *state_.remind_at <= now_) {
      state_.remind_at.reset();
      if (state_.phase == Phase::Starting) actions_.emplace_back(Remind{});
    }
    each({HostState::LoggingIn}, [this](std::size_t i) {
      if (state_.phase == Phase::Starting && host(i).since + state_.login_timeout <= now_)
        time_out(i);
    });
    if (state_.end_node_0_at && *state_.end_node_0_at <= now_) {
      state_.end_node_0_at.reset();
      if (host(0).state == HostState::Running)
        actions_.emplace_back(Say{0, "signal " + std::to_string(SIGTERM)});
    }
    if (state_.end_by && *state_.end_by <= now_) {
      state_.end_by.reset();
      kill_all();
    }
  }

  void time_out(std::size_t i) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(state_.login_timeout).count();
    host(i).problem = "no answer within " + std::to_string(seconds) +
                      " s; see whether ssh works there, or give it longer with --login-timeout";
    host(i).problem_code = kRendezvousTimeout;
    host(i).state = HostState::Leaving;
    actions_.emplace_back(KillSsh{i});
  }

  void let_go(std::size_t i) {
    host(i).state = HostState::Leaving;
    actions_.emplace_back(LetGo{i});
  }

  void kill_all() {
    each({HostState::LoggingIn, HostState::Ready, HostState::Running, HostState::Leaving},
         [this](std::size_t i) {
           host(i).state = HostState::Leaving;
           actions_.emplace_back(KillSsh{i});
         });
  }

  // Nothing was started, nothing will be.
  void give_up() {
    state_.phase = Phase::Failed;
    state_.remind_at.reset();
    state_.end_by = now_ + kEndGrace;
    each({HostState::Queued}, [this](std::size_t i) { host(i).state = HostState::Ended; });
    each({HostState::Ready}, [this](std::size_t i) { let_go(i); });
    each({HostState::LoggingIn}, [this](std::size_t i) {
      host(i).state = HostState::Leaving;
      actions_.emplace_back(KillSsh{i});
    });
  }

  // Logs in where there is room; once all have answered, goes or gives up.
  void settle() {
    int busy = 0;
    each({HostState::LoggingIn}, [&busy](std::size_t) { ++busy; });
    each({HostState::Queued}, [&](std::size_t i) {
      if (busy >= state_.fanout) return;
      ++busy;
      host(i).state = HostState::LoggingIn;
      host(i).since = now_;
      actions_.emplace_back(LogIn{i});
    });
    if (has({HostState::Queued, HostState::LoggingIn})) return;
    const bool is_failed =
        std::any_of(state_.hosts.begin(), state_.hosts.end(),
                    [](const HostProgress& each) { return !each.problem.empty(); });
    if (is_failed && !can_go_without()) return give_up();
    state_.phase = Phase::Running;
    state_.remind_at.reset();
    for (std::size_t i = 0; i < state_.hosts.size(); ++i)
      if (!host(i).problem.empty()) actions_.emplace_back(GoWithout{i, host(i).problem});
    each({HostState::Ready}, [this](std::size_t i) {
      host(i).state = HostState::Running;
      actions_.emplace_back(Say{i, "go"});
    });
  }

  bool can_go_without() {
    const auto is_ready = [](const HostProgress& host) { return host.state == HostState::Ready; };
    const auto ready = std::count_if(state_.hosts.begin(), state_.hosts.end(), is_ready);
    const auto seats = std::count_if(state_.seats.begin(), state_.seats.end(),
                                     [&](std::size_t seat) { return is_ready(host(seat)); });
    return state_.least_hosts > 0 && ready >= state_.least_hosts &&
           2 * static_cast<std::size_t>(seats) > state_.seats.size();
  }

  Launching& state_;
  Time now_;
  std::vector<Action> actions_;
};

void earliest(std::optional<Time>& best, const std::optional<Time>& candidate) {
  if (candidate && (!best || *candidate < *best)) best = candidate;
}

}  // namespace

Launching launching_of(std::size_t hosts, int fanout, std::chrono::milliseconds login_timeout) {
  Launching state;
  state.hosts.resize(hosts);
  state.fanout = fanout;
  state.login_timeout = login_timeout;
  return state;
}

std::vector<Action> step(Launching& state, const Event& event, Time now) {
  return Step(state, now).run(event);
}

std::optional<Time> deadline(const Launching& state) {
  std::optional<Time> best;
  earliest(best, state.remind_at);
  earliest(best, state.end_by);
  earliest(best, state.end_node_0_at);
  if (state.phase != Phase::Starting) return best;
  for (const HostProgress& host : state.hosts)
    if (host.state == HostState::LoggingIn) earliest(best, host.since + state.login_timeout);
  return best;
}

bool is_over(const Launching& state) {
  return std::all_of(state.hosts.begin(), state.hosts.end(),
                     [](const HostProgress& host) { return host.state == HostState::Ended; });
}

}  // namespace drun::hosts
