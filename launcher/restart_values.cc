#include "launcher/restart_values.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "launcher/option_values.h"

namespace drun {
namespace {

using std::chrono::milliseconds;

Error bad(std::string reason) { return Error{ErrorCode::Usage, std::move(reason)}; }

// "90", "90s", "30m", "1h", "2d"; more than 0.
std::optional<milliseconds> time_span(std::string_view text) {
  constexpr std::string_view kUnits = "smhd";
  constexpr int kSeconds[] = {1, 60, 3600, 86400};
  const std::size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  if (unit != kUnits.npos) text.remove_suffix(1);
  const Result<milliseconds> number = parse_interval(text);
  constexpr milliseconds kMost = std::chrono::hours(24 * 365 * 30);
  if (!number || *number > kMost) return std::nullopt;
  return std::min(*number * (unit == kUnits.npos ? 1 : kSeconds[unit]), kMost);
}

}  // namespace

std::optional<int> signal_number(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* known = sigabbrev_np(signal);
    if (known != nullptr && name == known) return signal;
  }
  return std::nullopt;
}

Result<RestartBudget> parse_restarts(std::string_view text) {
  const std::size_t slash = text.find('/');
  const Result<int> most = parse_count(text.substr(0, slash));
  if (!most) return most.error();
  if (slash == text.npos) return RestartBudget{.most = *most};
  const auto window = time_span(text.substr(slash + 1));
  if (!window)
    return bad("expected a count, or a count within a time, such as 3/1h (units s, m, h, d)");
  return RestartBudget{.most = *most, .window = *window};
}

Result<RestartPause> parse_pause(std::string_view text) {
  const std::size_t colon = text.find(':');
  const Result<milliseconds> first = parse_seconds(text.substr(0, colon));
  if (!first) return first.error();
  if (colon == text.npos) return RestartPause{.first = *first};
  const Result<milliseconds> most = parse_seconds(text.substr(colon + 1));
  if (!most) return most.error();
  if (*most < *first)
    return bad("the longest pause is shorter than the first; write such as 5:300");
  return RestartPause{.first = *first, .most = *most};
}

Result<ExitKinds> parse_exit_kinds(std::string_view text) {
  ExitKinds kinds;
  const Result<std::vector<std::string>> words = parse_words(text);
  for (const std::string& word : *words) {
    if (const std::optional<int> signal = signal_number(word)) {
      kinds.signals.push_back(*signal);
      continue;
    }
    const Result<int> code = parse_count(word);
    if (!code || *code < 1 || *code > 255)
      return bad("\"" + word +
                 "\" is neither an exit code from 1 to 255 nor a signal; write such as " +
                 "1,42,SIGKILL");
    kinds.codes.push_back(*code);
  }
  if (words->empty()) return bad("expected exit codes and signals, such as 1,42,SIGKILL");
  return kinds;
}

Result<RankOrder> parse_rank_order(std::string_view text) {
  if (text == "endpoint") return RankOrder::Endpoint;
  if (text == "natural") return RankOrder::Natural;
  if (text == "arrival") return RankOrder::Arrival;
  return bad("expected one of endpoint, natural, arrival");
}

}  // namespace drun
