#include "launcher/report/job_reading.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <variant>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/foreign_json.h"
#include "rendezvous/job/rank_ranges.h"
#include "rendezvous/job/slow_rank.h"

namespace drun::timeline {

// --- Fields of an event

namespace {

// At most `most_bytes` bytes, and then "..."; does not split a character.
std::string cut(std::string text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  return std::string(rendezvous::cut_text(text, most_bytes)) + "...";
}

}  // namespace

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

constexpr std::size_t kMostWords = 256;
constexpr std::size_t kMostTextBytes = std::size_t{9} << 10;  // more than an agent writes
constexpr std::size_t kMostTailLines = 20;
constexpr std::size_t kMostFailures = 16;

bool flag_of(const EventJson& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_boolean() && found->get<bool>();
}

// An empty list if the field is not a list, and an empty object if it is not an object.
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

// "ranks": [[0, 3], [8, 8]].
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

// Of job_ended. Absent: it has none, or one of a class that is not known.
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

constexpr std::size_t kMostStackTextLines = 1000;
constexpr std::size_t kMostHangs = 16;  // with stacks
constexpr std::size_t kMostRanks = std::size_t{4} * kMostLocalRanks;

}  // namespace

// --- One node

void NodeReading::enter(Phase next, double at_s) {
  if (phase && at_s > phase_began_s && node.spans.size() < kMostSpans) {
    const bool is_silent = *phase == Phase::Start && next != Phase::Running;
    node.spans.push_back({is_silent ? Phase::Running : *phase, phase_began_s, at_s});
  }
  phase = next;
  phase_began_s = at_s;
}

Rank* NodeReading::rank_of(const EventJson& event) {
  const int local_rank = int_of(event, "local_rank");
  if (local_rank >= kMostLocalRanks) return nullptr;
  const std::pair key(int_of(event, "round"), local_rank);
  if (!ranks.contains(key) && ranks.size() >= kMostRanks) {
    // Of past rounds, only failures are shown.
    for (auto it = ranks.begin(); it != ranks.end() && it->first.first < round;)
      it = it->second.has_failed ? std::next(it) : ranks.erase(it);
    if (ranks.size() >= kMostRanks) return nullptr;
  }
  Rank& rank = ranks[key];
  rank.round = key.first;
  rank.local_rank = local_rank;
  rank.rank = int_of(event, "rank");
  if (const int pid = int_of(event, "pid"); pid > 0) rank.pid = pid;
  return &rank;
}

void NodeReading::sort_ranks() {
  for (auto& [key, rank] : ranks) {
    const auto index = static_cast<std::size_t>(rank.local_rank);
    if (index < cpus.size()) rank.cpus = cpus[index];
    if (index < devices.size()) rank.devices = devices[index];
    if (!log_directory.empty())
      rank.log = log_directory + "/attempt_" + std::to_string(rank.round) + "/" +
                 std::to_string(rank.local_rank);
    if (key.first == round)
      node.ranks.push_back(std::move(rank));
    else if (rank.has_failed)
      node.earlier_failures.push_back(std::move(rank));
  }
}

// --- Events

void JobReading::read(NodeReading& reading, const Event& event) {
  struct Reader {
    std::string_view name;
    void (JobReading::*read)(NodeReading&, const Event&);
  };
  static constexpr std::array kReaders{
      Reader{"agent_started", &JobReading::agent_started},
      Reader{"coordinator_joined", &JobReading::coordinator_joined},
      Reader{"fault_injected", &JobReading::fault_injected},
      Reader{"hang_found", &JobReading::hang_found},
      Reader{"hang_suspected", &JobReading::hang_suspected},
      Reader{"job_ended", &JobReading::job_ended},
      Reader{"node_left_out", &JobReading::node_left_out},
      Reader{"phase", &JobReading::phase},
      Reader{"round_began", &JobReading::round_began},
      Reader{"round_ended", &JobReading::round_ended},
      Reader{"round_stopping", &JobReading::round_stopping},
      Reader{"signal", &JobReading::signal},
      Reader{"slow_found", &JobReading::slow_found},
      Reader{"worker_alive", &JobReading::worker_alive},
      Reader{"worker_ended", &JobReading::worker_ended},
      Reader{"worker_failed", &JobReading::worker_failed},
      Reader{"worker_started", &JobReading::worker_started},
  };
  const auto* found = std::find_if(kReaders.begin(), kReaders.end(), [&event](const Reader& each) {
    return each.name == event.name;
  });
  if (found != kReaders.end()) (this->*found->read)(reading, event);
}

void JobReading::agent_started(NodeReading& reading, const Event& event) {
  const EventJson& fields = event.fields;
  if (job_.command.empty()) job_.command = words_of(fields, "command", kMostWords, 4096);
  if (job_.drun_version.empty()) job_.drun_version = text_of(fields, "drun_version");
  if (job_.kernel.empty()) job_.kernel = text_of(fields, "kernel");
  if (job_.environment.empty()) {
    for (const auto& [name, value] : object_of(fields, "environment").items()) {
      if (job_.environment.size() == kMostWords) break;
      if (value.is_string())
        job_.environment.emplace_back(cut(name, kMostNameBytes),
                                      cut(value.get<std::string>(), 4096));
    }
  }
  reading.log_directory = text_of(fields, "log_directory", 4096);
  for (const EventJson& placement : list_of(fields, "worker_placements")) {
    if (!placement.is_object() || reading.cpus.size() >= kMostLocalRanks) continue;
    reading.cpus.push_back(text_of(placement, "cpus"));
    reading.devices.push_back(joined(words_of(placement, "devices", 64, 64), ","));
  }
}

void JobReading::phase(NodeReading& reading, const Event& event) {
  const auto phase = agent::phase_named(text_of(event.fields, "phase"));
  if (!phase) return;
  reading.enter(*phase, event.at_s);
  has_phases_ = true;
}

void JobReading::coordinator_joined(NodeReading& reading, const Event& event) {
  const double term = number_of(event.fields, "term").value_or(0);
  if (reading.term && term > *reading.term && term > 0)
    add_mark(MarkKind::Election, event,
             "joined a new coordinator, elected in term " +
                 std::to_string(static_cast<long>(std::min(term, 1e15))));
  reading.term = term;
}

// --- Rounds

void JobReading::round_began(NodeReading& reading, const Event& event) {
  const EventJson& fields = event.fields;
  const int number = int_of(fields, "round");
  reading.round = number;
  reading.node.node_rank = int_of(fields, "node_rank");
  if (!rounds_.contains(number) && rounds_.size() >= kMostRounds) return;
  Round& round = rounds_[number];
  const bool is_new = round.world_size == 0;
  round.round = number;
  round.restarts = int_of(fields, "restarts");
  round.world_size = std::max(1, int_of(fields, "world_size"));
  round.node_count = int_of(fields, "nodes");
  round.is_preflight = flag_of(fields, "is_preflight");
  round.begin_s = is_new ? event.at_s : std::min(round.begin_s, event.at_s);
  round.end_s = std::max(round.end_s, event.at_s);
}

void JobReading::round_stopping(NodeReading&, const Event& event) {
  const std::string cause = text_of(event.fields, "cause", 1024);
  last_stop_ = {event.at_s, event.node};
  Round* round = round_of(event.fields);
  if (round != nullptr && round->reason.empty()) round->reason = cause;
  if (cause.starts_with("lost ") && lost_.insert(cause).second)
    add_mark(MarkKind::NodeLost, event, cause);
}

void JobReading::round_ended(NodeReading&, const Event& event) {
  Round* round = round_of(event.fields);
  if (round == nullptr) return;
  const bool has_succeeded = flag_of(event.fields, "succeeded");
  round->has_succeeded = has_succeeded && (!round->has_ended || round->has_succeeded);
  round->has_ended = true;
  round->end_s = std::max(round->end_s, event.at_s);
  for (TimedFailure& failure : failures_of(event.fields, event.at_s))
    details_[{failure.round, failure.rank}] = std::move(failure);
}

Round* JobReading::round_of(const EventJson& event) {
  const auto found = rounds_.find(int_of(event, "round"));
  return found == rounds_.end() ? nullptr : &found->second;
}

// --- Workers

void JobReading::worker_started(NodeReading& reading, const Event& event) {
  if (Rank* rank = reading.rank_of(event.fields)) rank->began_s = event.at_s;
}

void JobReading::worker_alive(NodeReading& reading, const Event& event) {
  Rank* rank = reading.rank_of(event.fields);
  if (rank != nullptr && !rank->alive_s) rank->alive_s = event.at_s;
}

void JobReading::worker_failed(NodeReading& reading, const Event& event) {
  TimedFailure failure = failure_of(event.fields, event.at_s);
  failure.host = reading.node.host;
  failure.node_rank = reading.node.node_rank.value_or(0);
  if (Rank* rank = reading.rank_of(event.fields)) {
    rank->has_failed = true;
    rank->exit_code = exit_code(failure.status);
    rank->ended = to_string(failure.status);
    rank->ended_s = event.at_s;
  }
  add_mark(MarkKind::Failure, event,
           "rank " + std::to_string(failure.rank) + ": " + to_string(failure.status));
  Round* round = round_of(event.fields);
  if (round != nullptr && (!round->failure || event.at_s < round->failure->at_s))
    round->failure = std::move(failure);
}

void JobReading::worker_ended(NodeReading& reading, const Event& event) {
  const EventJson& fields = event.fields;
  Rank* rank = reading.rank_of(fields);
  if (rank == nullptr) return;
  rank->ended_s = event.at_s;
  rank->exit_code = int_of(fields, "exit_code");
  if (rank->ended.empty()) rank->ended = text_of(fields, "ended");
  rank->stopped_by_drun = flag_of(fields, "stopped_by_drun");
  if (const auto peak = number_of(fields, "peak_memory_bytes"); peak && *peak >= 0 && *peak < 1e18)
    rank->peak_memory_bytes = static_cast<std::uint64_t>(*peak);
  if (const auto used = number_of(fields, "processor_s"); used && *used >= 0 && *used < kLongest)
    rank->processor_s = used;
}

void JobReading::hang_suspected(NodeReading&, const Event& event) {
  add_mark(MarkKind::Hang, event,
           "rank " + std::to_string(int_of(event.fields, "rank")) + ": " +
               text_of(event.fields, "signs", 1024));
}

void JobReading::hang_found(NodeReading&, const Event& event) {
  if (Round* round = round_of(event.fields)) round->reason = text_of(event.fields, "cause", 1024);
  std::string stacks;
  for (const std::string& line : words_of(event.fields, "evidence", kMostStackTextLines, 512))
    stacks += line + "\n";
  if (hang_stacks_.size() >= kMostHangs) hang_stacks_.erase(hang_stacks_.begin());
  hang_stacks_[int_of(event.fields, "round")] = std::move(stacks);
}

void JobReading::slow_found(NodeReading&, const Event& event) {
  const EventJson& fields = event.fields;
  SlowRank slow{.node_rank = int_of(fields, "slow_node_rank"),
                .host = text_of(fields, "slow_host"),
                .percent = int_of(fields, "slower_percent"),
                .evidence = text_of(fields, "evidence", 1024)};
  if (number_of(fields, "slow_rank")) slow.rank = int_of(fields, "slow_rank");
  const std::string text = drun::text_of(slow);
  if (job_.slow.size() >= kMostSlowRanks || !slow_.insert(text).second) return;
  add_mark(MarkKind::Slow, event, text);
  job_.slow.push_back({.kind = SlowKind::Speed, .who = text});
}

// --- What happened to the job

void JobReading::node_left_out(NodeReading&, const Event& event) {
  const EventJson& fields = event.fields;
  const std::string text = "node " + std::to_string(int_of(fields, "left_out_node_rank")) + " (" +
                           text_of(fields, "left_out_host") +
                           "): " + text_of(fields, "reason", 1024);
  if (lost_.insert(text).second) add_mark(MarkKind::LeftOut, event, text);
}

void JobReading::fault_injected(NodeReading&, const Event& event) {
  const EventJson& fields = event.fields;
  const bool is_rank = number_of(fields, "fault_rank").has_value();
  const std::string place = "node " + std::to_string(int_of(fields, "fault_node_rank")) + " (" +
                            text_of(fields, "fault_host") + ")";
  const std::string text = text_of(fields, "fault") + (is_rank ? "" : " on " + place) +
                           ", in round " + std::to_string(int_of(fields, "round"));
  if (faults_.insert(text).second) add_mark(MarkKind::Fault, event, text);
}

void JobReading::signal(NodeReading&, const Event& event) {
  add_mark(MarkKind::Signal, event, text_of(event.fields, "signal_name") + " ends the job");
}

// All nodes report the same outcome, but one that did not take part may know less.
void JobReading::job_ended(NodeReading& reading, const Event& event) {
  const EventJson& fields = event.fields;
  reading.node.has_ended = true;
  const std::string outcome = text_of(fields, "outcome");
  if (outcome == "preempted" && job_.outcome != "preempted") {
    const auto [stop_s, stopped] = last_stop_.value_or(std::pair(event.at_s, event.node));
    add_mark({MarkKind::Preemption, stop_s, stopped, text_of(fields, "message", 1024)});
  }
  add_timeouts(event);
  const auto weight = [](const std::string& word) {
    return word == "failed"                               ? 4
           : word == "interrupted" || word == "preempted" ? 3
           : word == "succeeded"                          ? 2
                                                          : 1;
  };
  if (job_.outcome != "unknown" && weight(outcome) <= weight(job_.outcome)) return;
  job_.outcome = outcome;
  job_.restarts = int_of(fields, "restarts");
  job_.message = text_of(fields, "message", 4096);
  job_.failures = failures_of(fields, event.at_s);
  job_.diagnosis = diagnosis_of(fields);
}

// Collectives that ranks of the node had reported as timed out before the job was stopped.
void JobReading::add_timeouts(const Event& event) {
  const std::optional<double> now_s = seconds_of(text_of(event.fields, "time"));
  if (!now_s) return;
  for (const EventJson& timeout : list_of(event.fields, "timeouts")) {
    if (!timeout.is_object()) continue;
    const std::string call = text_of(timeout, "call");
    const double first_s = seconds_of(text_of(timeout, "time")).value_or(*now_s);
    const double at_s = std::max(0.0, event.at_s - std::max(0.0, *now_s - first_s));
    add_mark({MarkKind::Timeout, at_s, event.node,
              ranks_text(ranks_of(timeout)) + " reported a timeout of " +
                  (call.empty() ? "a collective" : call)});
  }
}

void JobReading::add_mark(MarkKind kind, const Event& event, std::string text) {
  add_mark({kind, event.at_s, event.node, std::move(text)});
}

void JobReading::add_mark(Mark mark) {
  if (job_.marks.size() < kMostMarks) job_.marks.push_back(std::move(mark));
}

// --- The end

void JobReading::add_details(TimedFailure& failure) const {
  const auto found = details_.find({failure.round, failure.rank});
  if (found == details_.end()) return;
  const double at_s = failure.at_s;
  failure = found->second;
  failure.at_s = at_s;
}

void JobReading::finish() {
  for (auto& [number, round] : rounds_) {
    if (round.failure) add_details(*round.failure);
    if (!round.has_ended) round.end_s = std::max(round.end_s, job_.wall_s);
    if (round.reason.empty() && round.failure)
      round.reason = "rank " + std::to_string(round.failure->rank) + " on node " +
                     std::to_string(round.failure->node_rank) + ": " +
                     to_string(round.failure->status);
    job_.rounds.push_back(round);
  }
  if (!job_.rounds.empty()) {
    job_.world_size = job_.rounds.back().world_size;
    job_.node_count = job_.rounds.back().node_count;
    job_.restarts = std::max(job_.restarts, job_.rounds.back().restarts);
  }
  for (TimedFailure& failure : job_.failures) {
    for (const Round& round : job_.rounds)
      if (round.failure && round.failure->round == failure.round &&
          round.failure->rank == failure.rank)
        failure.at_s = round.failure->at_s;
  }
  if (!job_.failures.empty()) {
    job_.root_cause = job_.failures.front();
  } else if (!job_.rounds.empty() && job_.outcome != "succeeded") {
    job_.root_cause = job_.rounds.back().failure;
  }
  // Only of a round that ended with that hang.
  if (job_.root_cause && std::holds_alternative<Hung>(job_.root_cause->status)) {
    const auto found = hang_stacks_.find(job_.root_cause->round);
    if (found != hang_stacks_.end()) job_.hang_stacks = found->second;
  }
  if (!has_phases_) job_.notes.emplace_back("the events have no phases; an older drun wrote them");
}

}  // namespace drun::timeline
