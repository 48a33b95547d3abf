#include "rendezvous/job/restart_policy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/job/stderr_lines.h"

namespace drun::rendezvous {
namespace {

bool holds(const std::vector<int>& numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

std::string_view last_line(std::string_view text) {
  text = trimmed(text);
  return text.substr(text.find_last_of('\n') + 1);  // npos + 1 is 0
}

// Process ids, addresses, times and steps differ between runs.
std::string without_numbers(std::string_view line) {
  std::string text;
  for (const char c : line) {
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      text += c;
    else if (text.empty() || text.back() != '#')
      text += '#';
  }
  return text;
}

// False for the frame of a group of exceptions of Python, and for other rules.
bool has_words(std::string_view line) {
  return std::any_of(line.begin(), line.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0;
  });
}

std::string error_line(const Failure& failure) {
  if (const std::string_view line = last_line(failure.message); !line.empty())
    return without_numbers(line);
  for (auto each = failure.stderr_tail.rbegin(); each != failure.stderr_tail.rend(); ++each) {
    const std::string_view line = without_rank_mark(*each);
    if (has_words(line) && !is_warning(line) && !is_note(line)) return without_numbers(line);
  }
  return "";
}

// For a hang, ignores the text, which contains the duration.
bool is_same(const ExitStatus& one, const ExitStatus& other) {
  if (std::holds_alternative<Hung>(one)) return std::holds_alternative<Hung>(other);
  return one == other;
}

bool came_from_outside(const Failure& failure) {
  constexpr std::array kSentByOthers = {SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM};
  const auto* killed = std::get_if<Killed>(&failure.status);
  return killed != nullptr && !failure.out_of_memory &&
         std::find(kSentByOthers.begin(), kSentByOthers.end(), killed->signal) !=
             kSentByOthers.end();
}

// `first`, doubled `times` times, at most `most`.
std::chrono::milliseconds doubled(std::chrono::milliseconds first, int times,
                                  std::chrono::milliseconds most) {
  std::chrono::milliseconds pause = first;
  if (pause.count() == 0) return pause;
  for (int i = 0; i < times && pause < most; ++i) pause *= 2;
  return std::min(pause, std::max(most, first));
}

bool holds(const std::vector<std::string>& faults, const RoundFault& fault) {
  return std::any_of(faults.begin(), faults.end(), [&fault](const std::string& each) {
    return each == kPointless ? fault.is_pointless : !each.empty() && each == fault.name;
  });
}

// "desync", "desync, after which a restart does not help (pointless)"
std::string fault_words(const ExitKinds& kinds, const RoundFault& fault) {
  const bool is_named =
      std::find(kinds.faults.begin(), kinds.faults.end(), fault.name) != kinds.faults.end();
  return is_named ? fault.name
                  : std::string(kPointless) + ", and a restart does not help after " +
                        (fault.name.empty() ? "this failure" : fault.name);
}

}  // namespace

bool contains(const ExitKinds& kinds, const ExitStatus& status, const RoundFault& fault) {
  if (holds(kinds.faults, fault)) return true;
  if (const auto* killed = std::get_if<Killed>(&status))
    return holds(kinds.signals, killed->signal);
  return holds(kinds.codes, exit_code(status));
}

bool needs_fault(const RestartPolicy& policy) {
  return !policy.never_on.faults.empty() || (policy.only_on && !policy.only_on->faults.empty());
}

std::optional<std::string> restart_objection(
    const RestartPolicy& policy, int most,
    std::span<const std::chrono::steady_clock::time_point> earlier, const ExitStatus& status,
    std::chrono::steady_clock::time_point now, const RoundFault& fault) {
  if (most == 0) return "--max-restarts=0";
  if (holds(policy.never_on.faults, fault))
    return "--no-restart-on names " + fault_words(policy.never_on, fault);
  if (contains(policy.never_on, status)) return "--no-restart-on names it";
  if (policy.only_on && !contains(*policy.only_on, status, fault))
    return "--restart-on does not name it" + (fault.name.empty() ? "" : " (" + fault.name + ")");
  if (restarts_counted(policy, earlier, now) < most) return std::nullopt;
  const std::string within = policy.per_progress ? " since the last progress"
                             : policy.window.count() == 0
                                 ? ""
                                 : " within " + duration_text(policy.window);
  if (most == 1) return "the only restart" + within + " is used";
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

FailureCause cause_of(const Failure& failure) {
  return {.rank = failure.rank, .status = failure.status, .error = error_line(failure)};
}

bool is_same(const FailureCause& one, const FailureCause& other) {
  if (!is_same(one.status, other.status) || one.error != other.error) return false;
  return !one.error.empty() || one.rank == other.rank;
}

FailureStreak next_streak(const FailureStreak& streak, const RestartPolicy& policy,
                          const FailedRound& round) {
  if (round.made_progress || round.ran_for >= policy.startup_time) return {};
  if (came_from_outside(round.failure)) return streak;
  FailureStreak next{.startup_failures = streak.startup_failures + 1,
                     .same_failures = 1,
                     .cause = cause_of(round.failure)};
  if (streak.cause && is_same(*streak.cause, *next.cause))
    next.same_failures = streak.same_failures + 1;
  return next;
}

std::optional<std::string> streak_objection(const RestartPolicy& policy,
                                            const FailureStreak& streak) {
  const int most = policy.max_same_failures;
  if (most == 0 || streak.same_failures < most) return std::nullopt;
  return "the job failed " + std::to_string(streak.same_failures) +
         (streak.same_failures == 1 ? " time" : " times in a row") + " within " +
         duration_text(policy.startup_time) +
         " of its start and without progress, each time in the same way (--max-same-failures=" +
         std::to_string(most) + ")";
}

std::chrono::milliseconds pause_after(const RestartPolicy& policy, const FailureStreak& streak,
                                      std::size_t seed) {
  if (streak.startup_failures == 0) return std::chrono::milliseconds(0);
  const std::chrono::milliseconds pause =
      doubled(policy.startup_pause, streak.startup_failures - 1, policy.most_pause);
  return pause + pause * static_cast<int>(seed % 256) / 1024;
}

std::chrono::milliseconds pause_before(const RestartPolicy& policy, int restart) {
  return doubled(policy.pause, restart - 1, policy.most_pause);
}

}  // namespace drun::rendezvous
