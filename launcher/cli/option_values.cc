#include "launcher/cli/option_values.h"

#include <arpa/inet.h>
#include <regex.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "agent/diagnosis/diagnosis.h"
#include "rendezvous/base/signal_names.h"
#include "rendezvous/base/text.h"

namespace drun {
namespace {

Error bad(std::string reason) { return Error{ErrorCode::Usage, std::move(reason)}; }

// Parses all of `text` as a number, without a '+' sign.
template <typename Number>
std::optional<Number> number(std::string_view text) {
  return whole_number<Number>(trimmed(text));
}

struct Range {
  int low = 0;
  int high = std::numeric_limits<int>::max();
};

Result<int> integer(std::string_view text, Range range, std::string_view what) {
  const std::optional<long long> value = number<long long>(text);
  if (value && *value >= range.low && *value <= range.high) return static_cast<int>(*value);
  return bad("expected " + std::string(what) + ", a whole number from " +
             std::to_string(range.low) + " to " + std::to_string(range.high));
}

constexpr OptionWord<Device> kDeviceWords[] = {
    {"auto", Device::Auto}, {"cpu", Device::Cpu}, {"gpu", Device::Gpu}, {"xpu", Device::Xpu}};
constexpr OptionWord<MapBy::Order> kMapByWords[] = {{"slot", MapBy::Order::Slot},
                                                    {"node", MapBy::Order::Node}};

Result<std::chrono::milliseconds> seconds(std::string_view text, bool may_be_zero) {
  constexpr double kMostSeconds = 1e9;  // over 30 years; more would overflow clock arithmetic
  const std::optional<double> value = number<double>(text);
  const bool is_good = value && std::isfinite(*value) && *value <= kMostSeconds &&
                       (may_be_zero ? *value >= 0 : *value > 0);
  if (!is_good) {
    return bad(std::string("expected seconds, ") +
               (may_be_zero ? "from 0 to" : "above 0 and up to") +
               " 1000000000, such as 30 or 0.5");
  }
  return std::chrono::milliseconds(std::llround(std::ceil(*value * 1000.0)));
}

// Shell rules: a backslash is literal in single quotes, and in double quotes unless one of these
// characters follows it.
bool is_escape(char quote, char next) {
  if (quote == '\0') return true;
  return quote == '"' && next != '\0' &&
         std::string_view("$`\"\\").find(next) != std::string_view::npos;
}

// A program that calls drun without a shell may leave quotes in the value: --rdzv-conf='a=1,b=2'.
std::string_view without_quotes(std::string_view text) {
  text = trimmed(text);
  const bool is_quoted = text.size() > 1 && text.front() == text.back() &&
                         (text.front() == '\'' || text.front() == '"');
  return is_quoted ? trimmed(text.substr(1, text.size() - 2)) : text;
}

constexpr std::string_view kStreamsHelp =
    "expected 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or a list of local ranks such as "
    "0:3,12:1";

}  // namespace

Result<std::string> parse_text(std::string_view text) { return std::string(text); }

Result<std::string> parse_separator(std::string_view text) {
  if (!text.empty() && text != "--") return std::string(text);
  return bad("expected a word that is not an argument of any program, such as ::");
}

Result<NodeRange> parse_nodes(std::string_view text) {
  const std::vector<std::string_view> parts = trimmed_parts(text, ':');
  const Range range{1, kMostNodes};
  const Result<int> min = integer(parts[0], range, "nodes");
  const Result<int> max = integer(parts.back(), range, "nodes");
  if (parts.size() > 2 || !min || !max) {
    return bad("expected a number of nodes, such as 4, or MIN:MAX, each from 1 to " +
               std::to_string(kMostNodes));
  }
  if (*min > *max) return bad("MIN exceeds MAX; write MIN:MAX, such as 2:4");
  return NodeRange{.min = *min, .max = *max};
}

Result<LocalNodes> parse_local_nodes(std::string_view text) {
  static constexpr int kMostLocalNodes = 250;
  const std::vector<std::string_view> parts = trimmed_parts(text, ',');
  const Result<NodeRange> nodes = parse_nodes(parts[0]);
  const bool has_networks = parts.size() == 2 && parts[1] == "netns";
  if (!nodes && nodes.error().message.starts_with("MIN")) return nodes.error();
  if (!nodes || nodes->max > kMostLocalNodes || (parts.size() > 1 && !has_networks))
    return bad("expected a number of nodes, or MIN:MAX, from 1 to " +
               std::to_string(kMostLocalNodes) +
               ", and possibly ,netns behind it, such as 3 or 2:4,netns");
  return LocalNodes{.min = nodes->min, .max = nodes->max, .has_networks = has_networks};
}

Result<WorkerCount> parse_workers(std::string_view text) {
  const Result<Device> device = parse_word<kDeviceWords>(text);
  if (device) return WorkerCount(*device);
  const Result<int> count = integer(text, {1, kMostWorkers}, "workers");
  if (count) return WorkerCount(*count);
  return bad("expected a number of workers from 1 to " + std::to_string(kMostWorkers) +
             ", or auto, cpu or gpu");
}

Result<int> parse_rank(std::string_view text) { return integer(text, {0, kMostNodes}, "a rank"); }
Result<int> parse_port(std::string_view text) { return integer(text, {0, 65535}, "a port"); }
Result<Endpoint> parse_metrics_port(std::string_view text) {
  if (const Result<int> port = parse_port(text))
    return Endpoint{.host = "127.0.0.1", .port = static_cast<std::uint16_t>(*port)};
  Result<Endpoint> at = parse_endpoint(text, 0);
  const bool has_port = text.find(':') != text.npos && !text.ends_with(']');
  if (at && at->host == "localhost") at->host = "127.0.0.1";
  in6_addr address{};
  const bool is_numeric = at && (inet_pton(AF_INET, at->host.c_str(), &address) == 1 ||
                                 inet_pton(AF_INET6, at->host.c_str(), &address) == 1);
  if (is_numeric && has_port) return at;
  return bad(
      "expected a port from 0 to 65535, optionally after an address of this host, such as 9464 or "
      "0.0.0.0:9464");
}
Result<int> parse_count(std::string_view text) { return integer(text, {}, "a count"); }

Result<std::chrono::milliseconds> parse_seconds(std::string_view text) {
  return seconds(text, true);
}
Result<std::chrono::milliseconds> parse_interval(std::string_view text) {
  return seconds(text, false);
}

Result<StreamChoice> parse_streams(std::string_view text) {
  StreamChoice choice;
  if (text.find(':') == text.npos) {
    const Result<int> all = integer(text, {0, 3}, "");
    if (!all) return bad(std::string(kStreamsHelp));
    choice.all = *all;
    return choice;
  }
  for (const std::string_view part : trimmed_parts(text, ',')) {
    const std::vector<std::string_view> sides = trimmed_parts(part, ':');
    const Result<int> rank = integer(sides[0], {0, kMostWorkers - 1}, "");
    const Result<int> streams = integer(sides.back(), {0, 3}, "");
    if (sides.size() != 2 || !rank || !streams) return bad(std::string(kStreamsHelp));
    choice.of_ranks[*rank] = *streams;
  }
  return choice;
}

Result<std::vector<int>> parse_ranks(std::string_view text) {
  std::vector<int> ranks;
  if (trimmed(text).empty()) return ranks;
  for (const std::string_view part : trimmed_parts(text, ',')) {
    const Result<int> rank = integer(part, {0, kMostWorkers - 1}, "");
    if (!rank) return bad("expected local ranks separated by commas, such as 0,1");
    ranks.push_back(*rank);
  }
  return ranks;
}

Result<RankRanges> parse_rank_ranges(std::string_view text) {
  RankRanges ranges;
  for (const std::string_view part : trimmed_parts(text, ',')) {
    const std::size_t dash = part.find('-');
    const Result<int> first = parse_rank(part.substr(0, dash));
    const Result<int> last = dash == part.npos ? first : parse_rank(part.substr(dash + 1));
    if (!first || !last || *last < *first)
      return bad("\"" + std::string(text) + "\" is not a list of ranks, such as 3 or 0-3,8");
    ranges.push_back({*first, *last});
  }
  normalize(ranges);
  return ranges;
}

Result<std::string> parse_pattern(std::string_view text) {
  std::string pattern(text);
  regex_t compiled;
  const int code = regcomp(&compiled, pattern.c_str(), REG_EXTENDED | REG_NOSUB);
  if (code == 0) {
    regfree(&compiled);
    return pattern;
  }
  char reason[256];
  regerror(code, &compiled, reason, sizeof(reason));
  return bad("it is not an extended regular expression (" + std::string(reason) +
             "); put a backslash before characters such as [ and (");
}

Result<std::vector<std::string>> parse_words(std::string_view text) {
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_comma = text[i] == ',';
    const bool is_literal = is_comma && i + 1 < text.size() && text[i + 1] == ',';
    if (is_comma && !is_literal) {
      words.emplace_back();
      continue;
    }
    words.back() += text[i];
    if (is_literal) ++i;
  }
  std::erase(words, "");
  return words;
}

Result<std::vector<std::pair<std::string, std::string>>> parse_pairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  text = without_quotes(text);
  if (trimmed(text).empty()) return pairs;
  for (const std::string_view part : trimmed_parts(text, ',')) {
    const std::size_t equals = part.find('=');
    const std::string_view key = trimmed(part.substr(0, equals));
    const std::string_view value =
        equals == part.npos ? std::string_view() : without_quotes(part.substr(equals + 1));
    if (key.empty() || value.empty()) {
      return bad("\"" + std::string(part) +
                 "\" is not KEY=VALUE; example: join_timeout=60,timeout=900");
    }
    pairs.emplace_back(key, value);
  }
  return pairs;
}

Result<bool> parse_switch(std::string_view text) {
  const std::optional<long long> value = number<long long>(text);
  if (!value) return bad("expected 1 (on) or 0 (off)");
  return *value != 0;
}

Result<DryRun> parse_dry_run(std::string_view text) {
  if (text.empty()) return DryRun::Text;  // --dry-run without a value
  return parse_word<kDryRunWords>(text);
}

Result<int> parse_positive(std::string_view text) {
  return integer(text, {1, kMostWorkers}, "a count");
}

Result<OmpThreads> parse_omp_threads(std::string_view text) {
  if (trimmed(text) == "auto") return OmpThreads(AutoThreads{});
  const Result<int> count = parse_positive(text);
  if (count) return OmpThreads(*count);
  return bad("expected a number of threads from 1 to " + std::to_string(kMostWorkers) +
             ", or auto");
}

Result<std::vector<int>> parse_global_ranks(std::string_view text) {
  std::vector<int> ranks;
  for (const std::string_view part : trimmed_parts(text, ',')) {
    const Result<int> rank = integer(part, {}, "");
    if (!rank) return bad("expected ranks separated by commas, such as 0,3");
    ranks.push_back(*rank);
  }
  return ranks;
}

Result<std::vector<std::string>> parse_command(std::string_view text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    const bool is_blank = c == ' ' || c == '\t' || c == '\n';
    if (quote == '\0' && is_blank) {
      is_in_word = false;
      continue;
    }
    if (!std::exchange(is_in_word, true)) words.emplace_back();
    if (quote == '\0' ? c == '\'' || c == '"' : c == quote) {
      quote = quote == '\0' ? c : '\0';
    } else if (c == '\\' && is_escape(quote, next)) {
      if (next == '\0')
        return bad("the text ends with a backslash; add the character that it quotes");
      words.back() += text[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != '\0') return bad(std::string("the quote ") + quote + " is not closed");
  if (words.empty() || words.front().empty())
    return bad("expected a command, such as 'gdb -batch -ex run --args'");
  return words;
}

Result<MapBy> parse_map_by(std::string_view text) {
  const Result<MapBy::Order> order = parse_word<kMapByWords>(text);
  if (order) return MapBy{.order = *order, .per_node = std::nullopt};
  const std::vector<std::string_view> parts = trimmed_parts(text, ':');
  if (parts.size() == 3 && parts[0] == "ppr" && parts[2] == "node") {
    const Result<int> count = integer(parts[1], {1, kMostWorkers}, "workers");
    if (count) return MapBy{.order = MapBy::Order::Slot, .per_node = *count};
  }
  return bad(
      "expected slot, node, or ppr:N:node (N workers per host); use --bind-to to place workers "
      "within a host");
}

Result<std::string> parse_logs_specs(std::string_view text) {
  if (trimmed(text) == "default") return std::string(text);
  return bad("drun does not load plug-ins, which are Python code; remove the option");
}

namespace {

using std::chrono::milliseconds;

// "90", "90s", "30m", "1h", "2d"; above 0.
constexpr milliseconds kLongestTime = std::chrono::hours(24 * 365 * 30);

std::optional<milliseconds> time_span(std::string_view text) {
  constexpr std::string_view kUnits = "smhd";
  constexpr int kSeconds[] = {1, 60, 3600, 86400};
  const std::size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  if (unit != kUnits.npos) text.remove_suffix(1);
  const Result<milliseconds> number = parse_interval(text);
  if (!number || *number > kLongestTime) return std::nullopt;
  return std::min(*number * (unit == kUnits.npos ? 1 : kSeconds[unit]), kLongestTime);
}

// "HH:MM:SS", "D-HH", "D-HH:MM", "D-HH:MM:SS".
std::optional<milliseconds> clock_span(std::string_view text) {
  const std::size_t dash = text.find('-');
  const bool has_days = dash != text.npos;
  std::vector<std::string_view> parts = split(has_days ? text.substr(dash + 1) : text, ':');
  if (parts.size() > 3 || (!has_days && parts.size() != 3)) return std::nullopt;
  parts.insert(parts.begin(), has_days ? text.substr(0, dash) : "0");
  std::array<long, 4> numbers{};  // days, hours, minutes, seconds
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::optional<long> number = whole_number<long>(parts[i]);
    const long most = i < 2 ? 999'999 : 59;
    if (!number || *number < 0 || *number > most) return std::nullopt;
    numbers.at(i) = *number;
  }
  return std::min<milliseconds>(std::chrono::days(numbers[0]) + std::chrono::hours(numbers[1]) +
                                    std::chrono::minutes(numbers[2]) +
                                    std::chrono::seconds(numbers[3]),
                                kLongestTime);
}

}  // namespace

Result<milliseconds> parse_time_limit(std::string_view text) {
  const bool is_clock = text.find_first_of(":-") != text.npos;
  const std::optional<milliseconds> limit = is_clock ? clock_span(text) : time_span(text);
  if (!limit || limit->count() == 0)
    return bad("expected a time, such as 90 (seconds), 30m, 12h, 2d, 01:30:00 or 2-12:00:00");
  return *limit;
}

Result<SignalBefore> parse_signal_before(std::string_view text) {
  const std::size_t colon = text.find(':');
  const Result<milliseconds> time = parse_interval(text.substr(0, colon));
  if (!time) return time.error();
  if (colon == text.npos) return SignalBefore{.time = *time, .signal = SIGTERM};
  const std::optional<int> signal = signal_number(text.substr(colon + 1));
  if (!signal || *signal == SIGKILL || *signal == SIGSTOP)
    return bad("\"" + std::string(text.substr(colon + 1)) +
               "\" is not a signal that a program can handle; write such as 60:SIGUSR1");
  return SignalBefore{.time = *time, .signal = *signal};
}

std::optional<int> signal_number(std::string_view name) {
  const std::optional<SignalName> signal = find_signal(name);
  return signal ? std::optional(signal->number) : std::nullopt;
}

Result<RestartBudget> parse_restarts(std::string_view text) {
  const std::size_t slash = text.find('/');
  const Result<int> most = parse_count(text.substr(0, slash));
  if (!most) return most.error();
  if (slash == text.npos) return RestartBudget{.most = *most};
  if (text.substr(slash + 1) == "progress")
    return RestartBudget{.most = *most, .per_progress = true};
  const auto window = time_span(text.substr(slash + 1));
  if (!window)
    return bad(
        "expected a count, a count within a time, such as 3/1h (units s, m, h, d), or a count "
        "that progress restores, such as 5/progress");
  return RestartBudget{.most = *most, .window = *window};
}

Result<RestartPause> parse_pause(std::string_view text) {
  const std::size_t colon = text.find(':');
  const Result<milliseconds> first = parse_seconds(text.substr(0, colon));
  if (!first) return first.error();
  if (colon == text.npos) return RestartPause{.first = *first};
  const Result<milliseconds> most = parse_seconds(text.substr(colon + 1));
  if (!most) return most.error();
  if (*most < *first) return bad("the maximum pause is shorter than the first one; example: 5:300");
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
    const std::vector<std::string>& faults = agent::round_faults();
    if (word == kPointless || std::find(faults.begin(), faults.end(), word) != faults.end()) {
      kinds.faults.push_back(word);
      continue;
    }
    const Result<int> code = parse_count(word);
    if (!code || *code < 1 || *code > 255)
      return bad("\"" + word +
                 "\" is neither an exit code from 1 to 255, a signal nor a class of " +
                 "docs/guide/diagnosis.md; example: 1,42,SIGKILL,network");
    kinds.codes.push_back(*code);
  }
  if (words->empty())
    return bad("expected exit codes, signals and classes, such as 1,42,SIGKILL,network");
  return kinds;
}

namespace {

constexpr std::string_view kByteUnits = "kmgt";
constexpr std::uint64_t kLeast = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostSizeBytes = std::uint64_t{1} << 50;

// The power of 1024 for "gib" and others; npos if invalid.
std::size_t power_of(std::string_view unit) {
  if (unit.empty() || unit == "b") return 0;
  const std::size_t place = kByteUnits.find(unit[0]);
  const std::string_view rest = unit.substr(1);
  const bool is_whole = rest.empty() || rest == "b" || rest == "ib";
  return place == kByteUnits.npos || !is_whole ? kByteUnits.npos : place + 1;
}

Error bad_size() { return bad("expected a size from 1MiB to 1024TiB, such as 512MiB or 2G"); }

}  // namespace

Result<std::size_t> parse_memory_size(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc()) return bad_size();
  const std::size_t power =
      power_of(lower_case(text.substr(static_cast<std::size_t>(end - text.data()))));
  if (power == kByteUnits.npos || number > kMostSizeBytes >> (10 * power)) return bad_size();
  const std::uint64_t bytes = number << (10 * power);
  if (bytes < kLeast) return bad_size();
  return static_cast<std::size_t>(bytes);
}

std::string memory_size_text(std::size_t bytes) {
  for (std::size_t power = kByteUnits.size(); power > 0; --power) {
    const std::size_t unit = std::size_t{1} << (10 * power);
    if (bytes == 0 || bytes % unit != 0) continue;
    return std::to_string(bytes / unit) + static_cast<char>(kByteUnits[power - 1] - 32) + "iB";
  }
  return std::to_string(bytes) + " bytes";
}

}  // namespace drun
