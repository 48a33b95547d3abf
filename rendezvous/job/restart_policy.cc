#include "rendezvous/job/restart_policy.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace drun::rendezvous {
namespace {

bool holds(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

bool contains(const ExitKinds& kinds, const ExitStatus& status) {
  if (const auto* killed = std::get_if<Killed>(&status))
    return holds(kinds.signals, killed->signal);
  return holds(kinds.codes, exit_code(status));
}

std::optional<std::string> restart_objection(
    const RestartPolicy& policy, int most,
    std::span<const std::chrono::steady_clock::time_point> earlier, const ExitStatus& status,
    std::chrono::steady_clock::time_point now) {
  if (most == 0) return "--max-restarts=0";
  if (contains(policy.never_on, status)) return "--no-restart-on names it";
  if (policy.only_on && !contains(*policy.only_on, status)) return "--restart-on does not name it";
  if (restarts_counted(policy, earlier, now) < most) return std::nullopt;
  const std::string within =
      policy.window.count() == 0 ? "" : " within " + duration_text(policy.window);
  return "all " + std::to_string(most) + " restarts" + within + " are used";
}

int restarts_counted(const RestartPolicy& policy,
                     std::span<const std::chrono::steady_clock::time_point> earlier,
                     std::chrono::steady_clock::time_point now) {
  if (policy.window.count() == 0) return static_cast<int>(earlier.size());
  const auto since = now - policy.window;
  return static_cast<int>(std::count_if(earlier.begin(), earlier.end(),
                                        [since](const auto& restart) { return restart > since; }));
}

std::chrono::milliseconds pause_before(const RestartPolicy& policy, int restart) {
  std::chrono::milliseconds pause = policy.pause;
  if (pause.count() == 0) return pause;
  for (int i = 1; i < restart && pause < policy.most_pause; ++i) pause *= 2;
  return std::min(pause, std::max(policy.most_pause, policy.pause));
}

}  // namespace drun::rendezvous
