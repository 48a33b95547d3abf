#include "launcher/report/event_fields.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "launcher/base/words.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/foreign_json.h"

namespace drun::timeline {
namespace {

constexpr std::size_t kMostTextBytes = std::size_t{9} << 10;  // more than an agent writes
constexpr std::size_t kMostTailLines = 20;
constexpr std::size_t kMostFailures = 16;

}  // namespace

std::string cut(std::string text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  return std::string(rendezvous::cut_text(text, most_bytes)) + "...";
}

std::string text_of(const EventJson& event, const char* name, std::size_t most) {
  const auto found = event.find(name);
  if (found == event.end() || !found->is_string()) return "";
  return cut(found->get<std::string>(), most);
}

std::optional<double> number_of(const EventJson& event, const char* name) {
  const auto found = event.find(name);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

int int_of(const EventJson& event, const char* name, int least) {
  const double value = number_of(event, name).value_or(least);
  return static_cast<int>(std::clamp(value, static_cast<double>(least), 2e9));
}

bool flag_of(const EventJson& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_boolean() && found->get<bool>();
}

const EventJson& list_of(const EventJson& event, const char* name) {
  static const EventJson kEmpty = EventJson::array();
  const auto found = event.find(name);
  return found != event.end() && found->is_array() ? *found : kEmpty;
}

const EventJson& object_of(const EventJson& event, const char* name) {
  static const EventJson kEmpty = EventJson::object();
  const auto found = event.find(name);
  return found != event.end() && found->is_object() ? *found : kEmpty;
}

std::vector<std::string> words_of(const EventJson& event, const char* name, std::size_t most_words,
                                  std::size_t most_bytes) {
  std::vector<std::string> words;
  for (const EventJson& word : list_of(event, name)) {
    if (words.size() == most_words) break;
    if (word.is_string()) words.push_back(cut(word.get<std::string>(), most_bytes));
  }
  return words;
}

std::optional<double> seconds_of(const std::string& time) {
  int year = 0;
  int month = 0;
  int day = 0;
  int hour = 0;
  int minute = 0;
  double second = 0;
  if (std::sscanf(time.c_str(), "%4d-%2d-%2dT%2d:%2d:%9lf", &year, &month, &day, &hour, &minute,
                  &second) != 6)
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (year < 1970 || !date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 ||
      !(second >= 0 && second < 61))
    return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 + second;
}

namespace {

// Of a system_message(), as long as the C library that wrote it has the same messages.
std::optional<int> errno_of(std::string_view message) {
  constexpr int kMostErrno = 133;  // errno(3)
  for (int number = 1; number <= kMostErrno; ++number)
    if (system_message(number) == message) return number;
  return std::nullopt;
}

// Events have the status as text, such as "signal 9 (SIGKILL, killed)".
ExitStatus status_of(const EventJson& event) {
  const std::string ended = text_of(event, "ended");
  const int code = int_of(event, "exit_code");
  constexpr std::string_view kSignal = "signal ";
  constexpr std::string_view kHung = "hung: ";
  constexpr std::string_view kNotStarted = "not started: ";
  if (ended.starts_with(kSignal))
    return Killed{std::clamp(std::atoi(ended.c_str() + kSignal.size()), 0, 64),
                  ended.ends_with(", core dumped")};
  if (ended.starts_with(kHung)) return Hung{ended.substr(kHung.size())};
  if (ended == "not started") return NotStarted{EIO};
  if (ended.starts_with(kNotStarted))
    return NotStarted{
        errno_of(ended.substr(kNotStarted.size())).value_or(code == 127 ? ENOENT : EACCES)};
  return Exited{code};
}

}  // namespace

TimedFailure failure_of(const EventJson& event, double at_s) {
  TimedFailure failure;
  failure.rank = int_of(event, "rank");
  failure.local_rank = int_of(event, "local_rank");
  failure.node_rank = int_of(event, "node_rank");
  failure.host = text_of(event, "host");
  failure.pid = int_of(event, "pid");
  failure.round = int_of(event, "round");
  failure.status = status_of(event);
  failure.out_of_memory = flag_of(event, "out_of_memory");
  failure.message = text_of(event, "message", kMostTextBytes);
  failure.traceback = text_of(event, "traceback", kMostTextBytes);
  failure.stderr_tail = words_of(event, "stderr_tail", kMostTailLines, 1024);
  failure.stderr_file = text_of(event, "stderr_file", 4096);
  failure.at_s = at_s;
  return failure;
}

RankRanges ranks_of(const EventJson& event) {
  RankRanges ranks;
  for (const EventJson& range : list_of(event, "ranks")) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_integer() ||
        !range[1].is_number_integer())
      continue;
    constexpr int kMostRank = 1 << 30;
    const int first = std::clamp(drun::int_of(range[0]), 0, kMostRank);
    const int last = std::clamp(drun::int_of(range[1]), first, kMostRank);
    if (ranks.size() < kMostWords) ranks.push_back({first, last});
  }
  return ranks;
}

std::vector<TimedFailure> failures_of(const EventJson& event, double at_s) {
  std::vector<TimedFailure> failures;
  for (const EventJson& failure : list_of(event, "failures")) {
    if (failures.size() == kMostFailures) break;
    if (failure.is_object()) failures.push_back(failure_of(failure, at_s));
  }
  return failures;
}

std::optional<agent::Diagnosis> diagnosis_of(const EventJson& event) {
  const EventJson& fields = object_of(event, "diagnosis");
  constexpr std::size_t kMostPartBytes = 1024;
  agent::Diagnosis diagnosis{
      .fault = agent::fault_named(text_of(fields, "class")),
      .ranks = ranks_of(fields),
      .summary = text_of(fields, "summary", kMostPartBytes),
      .evidence = words_of(fields, "evidence", agent::kMostEvidenceLines, kMostPartBytes),
      .advice = text_of(fields, "advice", kMostPartBytes),
      .adds_to_headline = flag_of(event, "diagnosis_adds_to_headline")};
  if (diagnosis.fault == agent::FaultClass::None) return std::nullopt;
  if (number_of(fields, "exclude_node")) diagnosis.exclude_node = int_of(fields, "exclude_node");
  for (const auto helps : {agent::RestartHelps::No, agent::RestartHelps::Yes})
    if (text_of(fields, "restart_helps") == word_of(helps)) diagnosis.restart_helps = helps;
  return diagnosis;
}

}  // namespace drun::timeline
