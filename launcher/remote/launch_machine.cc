#include "launcher/remote/launch_machine.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/report/report.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/protocol/membership_text.h"

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

  template <typename Action>
  void each(std::initializer_list<HostState> states, Action action) {
    for (std::size_t i = 0; i < state_.hosts.size(); ++i)
      if (std::find(states.begin(), states.end(), host(i).state) != states.end()) action(i);
  }
  bool has(std::initializer_list<HostState> states) {
    bool found = false;
    each(states, [&found](std::size_t) { found = true; });
    return found;
  }

  void take(const Began&) { state_.remind_at = now_ + kReminder; }

  void take(const CopyBegan& event) { host(event.host).is_copied_to = true; }

  void take(const HelloCame& event) {
    HostProgress& from = host(event.host);
    if (from.state != HostState::LoggingIn) return;
    if (!event.hello.problem.empty()) {
      from.problem = event.hello.problem;
      from.problem_code = event.hello.exit_code == 0 ? kSystemError : event.hello.exit_code;
    } else if (is_endpoint(event.host) && !has_place(event.hello)) {
      from.problem = "its agent has not said where it listens";
      from.problem_code = kRendezvousRefused;
    }
    from.place = event.hello.place;
    from.machine = event.hello.machine;
    from.state = from.problem.empty() ? HostState::Ready : HostState::Leaving;
    if (from.state == HostState::Leaving) actions_.emplace_back(CloseStdin{event.host});
  }

  void take(const JobRefused& event) {
    if (state_.phase != Phase::Starting) return;
    state_.refusal = event.error;
    give_up();
  }

  void take(const EndCame& event) {
    host(event.host).end = event.end;
    const bool is_first = !state_.said_last;
    if (is_first || !is_about_itself(event.end) || is_about_itself(*said_last().end))
      state_.said_last = event.host;
    if (event.host == 0) {
      state_.end_node_0_at.reset();
      // It cannot pass the signal on any more to a host that still waits, say for its files.
      if (state_.signal && state_.least_hosts == 0) send_to_unfinished(*state_.signal);
    }
    if (state_.phase == Phase::Running && event.end.could_not_reach && !state_.left_early)
      note_unreachable(event.host);
  }

  // `index` could not connect to any endpoint.
  void note_unreachable(std::size_t index) {
    if (state_.least_hosts > 0) {
      int left = 0;
      each({HostState::Running}, [&](std::size_t i) { left += host(i).end ? 0 : 1; });
      if (left >= state_.least_hosts) {
        actions_.emplace_back(ContinueWithout{index, host(index).end->text});
        return;
      }
      state_.left_early = index;
      send_to_unfinished(SIGTERM);
      return;
    }
    if (index == 0) return;
    state_.left_early = index;
    end_node_0();
  }

  bool is_endpoint(std::size_t index) const {
    return std::find(state_.endpoints.begin(), state_.endpoints.end(), index) !=
           state_.endpoints.end();
  }
  static bool has_place(const Hello& hello) {
    return hello.place.port > 0 && hello.place.port <= 65535 && hello.place.master_port >= 0 &&
           hello.place.master_port <= 65535;
  }
  static std::string line_of(int signal) { return "signal " + std::to_string(signal); }
  void send_to_unfinished(int signal) {
    each({HostState::Running}, [&](std::size_t i) {
      if (!host(i).end) actions_.emplace_back(SendLine{i, line_of(signal)});
    });
  }
  void end_node_0() {
    state_.is_left_early_cause = true;
    if (host(0).state == HostState::Running) actions_.emplace_back(SendLine{0, line_of(SIGTERM)});
  }

  Go go() {
    Go go;
    for (const std::size_t endpoint : state_.endpoints) {
      Place place;
      if (host(endpoint).state == HostState::Ready) place = host(endpoint).place;
      place.addresses = usable_addresses(place.addresses);
      go.places.push_back(std::move(place));
    }
    std::optional<std::string> machine;
    go.is_one_machine = true;
    each({HostState::Ready}, [&](std::size_t i) {
      const std::string& other = host(i).machine;
      if (!machine) machine = other;
      go.is_one_machine = go.is_one_machine && !other.empty() && other == *machine;
    });
    return go;
  }

  HostProgress& said_last() { return host(*state_.said_last); }

  // A node that lost contact with the others does not know how the job ended; such a report counts
  // only if all nodes send one.
  static bool is_about_itself(const End& end) {
    return end.exit_code == kNodeLost || end.exit_code == kRendezvousTimeout ||
           end.exit_code == kRendezvousRefused;
  }

  void take(const SessionEnded& event) {
    HostProgress& from = host(event.host);
    const HostState before = std::exchange(from.state, HostState::Ended);
    from.code = event.code;
    if (state_.phase == Phase::Starting && before != HostState::Leaving)
      return note_early_end(from, event, state_.link);
    if (state_.phase != Phase::Running) return;
    if (state_.least_hosts > 0) return note_lost(event.host, before);
    if (event.host == 0) {
      state_.end_by = now_ + kEndGrace;
      if (!from.end) each({HostState::Running}, [this](std::size_t i) { let_go(i); });
    } else if (host(0).state == HostState::Running && !state_.left_early && !has_succeeded(from)) {
      state_.left_early = event.host;
      if (!host(0).end) state_.end_node_0_at = now_ + kEndGrace;
    }
  }

  // A node reports success only as the outcome of the job, which node 0 then knows as well.
  static bool has_succeeded(const HostProgress& host) {
    return host.end && host.end->exit_code == 0;
  }

  void note_lost(std::size_t index, HostState before) {
    const HostProgress& from = host(index);
    const bool is_over = state_.said_last && !is_about_itself(*said_last().end);
    if (is_over && !state_.end_by) state_.end_by = now_ + kEndGrace;
    if (!from.end && before == HostState::Running && !is_over && !state_.signal)
      actions_.emplace_back(ContinueWithout{index, ""});
  }

  static void note_early_end(HostProgress& from, const SessionEnded& event,
                             const std::string& link) {
    from.problem = event.words;
    if (from.problem.empty())
      from.problem =
          link + " ended with exit code " + std::to_string(event.code) + ", without a word";
    const bool is_program = event.code == kNotFound || event.code == kNotExecutable;
    from.problem_code = event.code == kSshFailed ? kRendezvousTimeout
                        : is_program             ? event.code
                                                 : kRendezvousRefused;
  }

  void take(const SignalCame& event) {
    if (state_.signal) return;
    state_.signal = event.signal;
    if (state_.phase != Phase::Running) return give_up();
    const std::string line = line_of(event.signal);
    if (host(0).state == HostState::Running && state_.least_hosts == 0) {
      actions_.emplace_back(SendLine{0, line});
    } else {
      each({HostState::Running}, [&](std::size_t i) { actions_.emplace_back(SendLine{i, line}); });
    }
  }

  void take(const KillCame&) {
    if (state_.phase != Phase::Running) return kill_all();
    each({HostState::Running}, [this](std::size_t i) {
      actions_.emplace_back(SendLine{i, "kill"});
    });
    state_.end_by = now_ + kEndGrace;
  }

  void take(const ForwardSignal& event) {
    const std::string line = "pass " + std::to_string(event.signal);
    each({HostState::Running}, [&](std::size_t i) { actions_.emplace_back(SendLine{i, line}); });
  }

  void take(const TimerExpired& event) {
    if (state_.remind_at && *state_.remind_at <= now_) {
      state_.remind_at.reset();
      if (state_.phase == Phase::Starting) actions_.emplace_back(RemindOfHosts{});
    }
    each({HostState::LoggingIn}, [this](std::size_t i) {
      if (state_.phase == Phase::Starting && host(i).since + state_.login_timeout <= now_)
        time_out(i);
    });
    const Time quiet_since = event.last_output;
    if (is_over_at(state_.end_node_0_at, quiet_since)) end_node_0();
    if (is_over_at(state_.end_by, quiet_since)) kill_all();
  }

  // Whether the grace period until `end` is over. Output extends it.
  bool is_over_at(std::optional<Time>& end, Time quiet_since) {
    if (!end || *end > now_) return false;
    if (state_.phase == Phase::Running && quiet_since + kLongestOutputPause > now_) {
      end = quiet_since + kLongestOutputPause;
      return false;
    }
    end.reset();
    return true;
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
    actions_.emplace_back(CloseStdin{i});
  }

  void kill_all() {
    each({HostState::LoggingIn, HostState::Ready, HostState::Running, HostState::Leaving},
         [this](std::size_t i) {
           host(i).state = HostState::Leaving;
           actions_.emplace_back(KillSsh{i});
         });
  }

  // Ends everything before the job was started.
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

  // Starts logins up to the fanout. When all hosts have answered, starts the job or gives up.
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
      if (!host(i).problem.empty()) actions_.emplace_back(ContinueWithout{i, host(i).problem});
    const std::string line = to_text(go());
    each({HostState::Ready}, [this, &line](std::size_t i) {
      host(i).state = HostState::Running;
      actions_.emplace_back(SendLine{i, line});
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

namespace {

constexpr std::size_t kMostNamed = 8;

// Prefixes each line of a host's text with its name.
std::string named_lines(const std::string& name, const std::string& words) {
  std::string text;
  for (const std::string_view line : lines_of(words)) {
    const std::string_view shown = line.substr(0, line.find_last_not_of('\r') + 1);
    if (!shown.empty()) text += "  " + name + ": " + printable(shown) + "\n";
  }
  return text;
}

// Why an elastic job cannot leave out that many hosts.
std::string why_not_without(const Launching& state, std::size_t count) {
  if (state.least_hosts == 0) return "";
  const auto least = static_cast<std::size_t>(state.least_hosts);
  if (state.hosts.size() - count < least)
    return ", and --nnodes asks for " + std::to_string(least) + " at least";
  return ", among them " +
         std::string(state.seats.size() == 1 ? "the first, where all meet"
                                             : "two of the first three, where all "
                                               "meet") +
         ": put others first";
}

LaunchEnd not_started(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  LaunchEnd end;
  std::size_t count = 0;
  std::string list;
  for (std::size_t i = 0; i < state.hosts.size(); ++i) {
    const HostProgress& host = state.hosts[i];
    if (host.problem.empty()) continue;
    if (++count == 1) end.exit_code = styled_code(host.problem_code, plan.exit_codes);
    list += named_lines(plan.nodes[i].name, host.problem);
  }
  end.text = invoked_as + ": cannot start on " + std::to_string(count) + " of " +
             std::to_string(state.hosts.size()) + " hosts" + why_not_without(state, count) +
             "; nothing was started\n" + list;
  return end;
}

// For a session of node 0 that ended without a final message of its agent.
LaunchEnd lost(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  const int code = state.hosts.front().code.value_or(kSshFailed);
  const bool is_ssh = code == kSshFailed || code == 0;
  LaunchEnd end;
  end.exit_code = styled_code(is_ssh ? kNodeLost : code, plan.exit_codes);
  end.text =
      invoked_as + ": lost " + plan.nodes.front().name + ", which led the job: " +
      (is_ssh && !plan.local_nodes ? "its ssh connection ended"
                                   : "its agent ended with exit code " + std::to_string(code)) +
      "; the other nodes were stopped\n";
  return end;
}

LaunchEnd elastic_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  // Too many hosts could not reach the others, so the rest was stopped.
  const std::optional<std::size_t> cause = state.left_early ? state.left_early : state.said_last;
  if (cause) {
    const End& end = *state.hosts[*cause].end;
    return {end.exit_code, end.text, end.report};
  }
  return {.exit_code = styled_code(kNodeLost, plan.exit_codes),
          .text = invoked_as + ": lost all hosts: none has said how the job ended\n",
          .report = {}};
}

}  // namespace

LaunchEnd launch_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  const bool has_run = state.phase == Launching::Phase::Running;
  if (!has_run && state.refusal) return launch_end(*state.refusal, plan, invoked_as);
  if (!has_run && state.signal) {
    return {.exit_code = styled_code(128 + *state.signal, plan.exit_codes),
            .text = invoked_as + ": ended by " + signal_name(*state.signal) +
                    " before all hosts were ready; nothing was started\n",
            .report = {}};
  }
  if (!has_run) return not_started(state, plan, invoked_as);
  if (state.least_hosts > 0) return elastic_end(state, plan, invoked_as);
  const HostProgress& first = state.hosts.front();
  if (state.is_left_early_cause && !state.signal) {
    const HostProgress& cause = state.hosts[*state.left_early];
    const std::string& name = plan.nodes[*state.left_early].name;
    if (cause.end && cause.end->exit_code != 0)
      return {cause.end->exit_code, cause.end->text, cause.end->report};
    const char* const what = plan.local_nodes ? "agent" : "ssh";
    return {.exit_code = styled_code(kNodeLost, plan.exit_codes),
            .text = invoked_as + ": " + name + " left the job: its " + what +
                    " ended with exit code " + std::to_string(cause.code.value_or(kSshFailed)) +
                    "\n",
            .report = first.end ? first.end->report : std::string()};
  }
  // The agent noticed the loss of its ssh and still sent its final message.
  const bool is_cut = first.end && first.end->exit_code == 128 + SIGHUP &&
                      first.code == kSshFailed && !state.signal;
  if (first.end && !is_cut) return {first.end->exit_code, first.end->text, first.end->report};
  return lost(state, plan, invoked_as);
}

LaunchEnd launch_end(const Error& error, const HostPlan& plan, const std::string& invoked_as) {
  return {.exit_code = exit_code(error, plan.exit_codes),
          .text = error_text(invoked_as, error),
          .report = {}};
}

std::string going_without_text(const ContinueWithout& without, const HostPlan& plan) {
  const std::string& name = plan.nodes[without.host].name;
  if (without.problem.empty())
    return "lost " + name + (plan.local_nodes ? ": its agent" : ": its ssh connection") +
           " ended; the job continues if enough " + (plan.local_nodes ? "nodes" : "hosts") +
           " are left";
  std::string words = without.problem.substr(0, without.problem.find_last_not_of("\r\n") + 1);
  std::replace(words.begin(), words.end(), '\n', ';');
  return name + " is left out: " + printable(words);
}

std::string reminder_text(const Launching& state, const HostPlan& plan) {
  const auto names_of = [&](bool is_copied_to) {
    std::string names;
    std::size_t count = 0;
    for (std::size_t i = 0; i < state.hosts.size(); ++i) {
      const HostProgress& host = state.hosts[i];
      const bool is_awaited = host.state == HostState::Queued || host.state == HostState::LoggingIn;
      if (!is_awaited || host.is_copied_to != is_copied_to) continue;
      if (++count <= kMostNamed) names += (count == 1 ? "" : ", ") + plan.nodes[i].name;
    }
    if (count > kMostNamed) names += " and " + std::to_string(count - kMostNamed) + " more";
    return names;
  };
  const std::string silent = names_of(false);
  const std::string copied_to = names_of(true);
  if (copied_to.empty()) return "no answer yet from " + silent;
  return (silent.empty() ? "" : "no answer yet from " + silent + "; ") + "copying drun to " +
         copied_to;
}

std::optional<std::string> progress_text(const Launching& state, const HostPlan& plan,
                                         std::chrono::milliseconds since) {
  if (state.phase != Launching::Phase::Starting) return std::nullopt;
  const auto ready = std::count_if(state.hosts.begin(), state.hosts.end(),
                                   [](const auto& host) { return host.state == HostState::Ready; });
  return std::to_string(ready) + " of " + std::to_string(state.hosts.size()) +
         " hosts are ready, " + reminder_text(state, plan) + "; " +
         rendezvous::duration_text(since);
}

}  // namespace drun::hosts
