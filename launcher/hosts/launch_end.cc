#include "launcher/hosts/launch_end.h"

#include <algorithm>
#include <csignal>

#include "launcher/exit_code.h"
#include "launcher/report.h"
#include "launcher/report_words.h"
#include "rendezvous/failure.h"
#include "rendezvous/round/roll_call.h"

namespace drun::hosts {
namespace {

constexpr std::size_t kMostNamed = 8;

int styled(int code, const HostPlan& plan) {
  const bool is_torchrun = plan.exit_codes == ExitCodeStyle::Torchrun;
  return is_torchrun && code != 0 && code != kUsage ? 1 : code;
}

// Each line of a host's words behind its name.
std::string named_lines(const std::string& name, const std::string& words) {
  std::string text;
  std::string_view left = words;
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    const std::string_view shown = line.substr(0, line.find_last_not_of('\r') + 1);
    if (!shown.empty()) text += "  " + name + ": " + printable(shown) + "\n";
  }
  return text;
}

// Of an elastic job, why those could not be left out.
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
    if (++count == 1) end.exit_code = styled(host.problem_code, plan);
    list += named_lines(plan.nodes[i].name, host.problem);
  }
  end.text = invoked_as + ": cannot start on " + std::to_string(count) + " of " +
             std::to_string(state.hosts.size()) + " hosts" + why_not_without(state, count) +
             "; nothing was started\n" + list;
  return end;
}

// Node 0's session ended without its agent's last words.
LaunchEnd lost(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  const int code = state.hosts.front().code.value_or(kSshFailed);
  const bool is_ssh = code == kSshFailed || code == 0;
  LaunchEnd end;
  end.exit_code = styled(is_ssh ? kNodeLost : code, plan);
  end.text = invoked_as + ": lost " + plan.nodes.front().name + ", which led the job: " +
             (is_ssh ? "its ssh connection ended"
                     : "its agent ended with exit code " + std::to_string(code)) +
             "; the other nodes were stopped\n";
  return end;
}

LaunchEnd elastic_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  if (state.said_last) {
    const End& end = *state.hosts[*state.said_last].end;
    return {end.exit_code, end.text, end.report};
  }
  return {.exit_code = styled(kNodeLost, plan),
          .text = invoked_as + ": lost all hosts: none has said how the job ended\n",
          .report = {}};
}

}  // namespace

LaunchEnd launch_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as) {
  const bool has_run = state.phase == Launching::Phase::Running;
  if (!has_run && state.signal) {
    return {.exit_code = styled(128 + *state.signal, plan),
            .text = invoked_as + ": ended by " + signal_name(*state.signal) +
                    " before all hosts were ready; nothing was started\n",
            .report = {}};
  }
  if (!has_run) return not_started(state, plan, invoked_as);
  if (state.least_hosts > 0) return elastic_end(state, plan, invoked_as);
  const HostProgress& first = state.hosts.front();
  // Told to end after the grace, and so not the one to say why.
  const bool was_told = state.left_early && !state.end_node_0_at && !state.signal;
  if (was_told) {
    const HostProgress& cause = state.hosts[*state.left_early];
    const std::string& name = plan.nodes[*state.left_early].name;
    if (cause.end && cause.end->exit_code != 0)
      return {cause.end->exit_code, cause.end->text, cause.end->report};
    return {.exit_code = styled(kNodeLost, plan),
            .text = invoked_as + ": " + name + " left the job: its ssh ended with exit code " +
                    std::to_string(cause.code.value_or(kSshFailed)) + "\n",
            .report = first.end ? first.end->report : std::string()};
  }
  // An agent that heard its ssh go, and could still say how it ended.
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

std::string going_without_text(const GoWithout& without, const HostPlan& plan) {
  const std::string& name = plan.nodes[without.host].name;
  if (without.problem.empty())
    return "lost " + name + ": its ssh connection ended; the job goes on if enough hosts are left";
  std::string words = without.problem.substr(0, without.problem.find_last_not_of("\r\n") + 1);
  std::replace(words.begin(), words.end(), '\n', ';');
  return name + " is left out: " + printable(words);
}

std::string reminder_text(const Launching& state, const HostPlan& plan) {
  std::string names;
  std::size_t count = 0;
  for (std::size_t i = 0; i < state.hosts.size(); ++i) {
    const HostState is = state.hosts[i].state;
    if (is != HostState::Queued && is != HostState::LoggingIn) continue;
    if (++count <= kMostNamed) names += (count == 1 ? "" : ", ") + plan.nodes[i].name;
  }
  if (count > kMostNamed) names += " and " + std::to_string(count - kMostNamed) + " more";
  return "no answer yet from " + names;
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
