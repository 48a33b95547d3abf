#include "launcher/report/timeline.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "rendezvous/job/slow_rank.h"

namespace drun::timeline {
namespace {

using EventJson = nlohmann::json;

constexpr std::size_t kMostNameBytes = 256;
constexpr std::size_t kMostWords = 256;
constexpr std::size_t kMostTextBytes = std::size_t{8} << 10;
constexpr std::size_t kMostTailLines = 20;
constexpr std::size_t kMostStackTextLines = 1000;
constexpr std::size_t kMostHangs = 16;  // with stacks
constexpr std::size_t kMostFailures = 16;
constexpr double kLongest = 1e9;

std::string cut(std::string text, std::size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xC0) == 0x80)
    --most_bytes;  // do not split a character
  return text.substr(0, most_bytes) + "...";
}

std::string text_of(const EventJson& event, const char* name, std::size_t most = kMostNameBytes) {
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

int int_of(const EventJson& event, const char* name, int least = 0) {
  const double value = number_of(event, name).value_or(least);
  return static_cast<int>(std::clamp(value, static_cast<double>(least), 2e9));
}

bool flag_of(const EventJson& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_boolean() && found->get<bool>();
}

std::vector<std::string> words_of(const EventJson& event, const char* name, std::size_t most_words,
                                  std::size_t most_bytes) {
  std::vector<std::string> words;
  const auto found = event.find(name);
  if (found == event.end() || !found->is_array()) return words;
  for (const EventJson& word : *found) {
    if (words.size() == most_words) break;
    if (word.is_string()) words.push_back(cut(word.get<std::string>(), most_bytes));
  }
  return words;
}

// Converts "2026-11-21T13:03:07.123456Z" to seconds since 1970.
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

// Events have the status as text, such as "signal 9 (SIGKILL, killed)".
ExitStatus status_of(const EventJson& event) {
  const std::string ended = text_of(event, "ended");
  const int code = int_of(event, "exit_code");
  constexpr std::string_view kSignal = "signal ";
  constexpr std::string_view kHung = "hung: ";
  if (ended.starts_with(kSignal))
    return Killed{std::clamp(std::atoi(ended.c_str() + kSignal.size()), 0, 64),
                  ended.ends_with(", core dumped")};
  if (ended.starts_with(kHung)) return Hung{ended.substr(kHung.size())};
  if (ended.starts_with("not started")) return NotStarted{code == 127 ? ENOENT : EACCES};
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

// "ranks": [[0, 3], [8, 8]]
RankRanges ranks_of(const EventJson& event) {
  RankRanges ranks;
  const auto found = event.find("ranks");
  if (found == event.end() || !found->is_array()) return ranks;
  for (const EventJson& range : *found) {
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
  const auto found = event.find("failures");
  if (found == event.end() || !found->is_array()) return failures;
  for (const EventJson& failure : *found) {
    if (failures.size() == kMostFailures) break;
    if (failure.is_object()) failures.push_back(failure_of(failure, at_s));
  }
  return failures;
}

void raise(Slowest& slowest, double seconds, const std::string& who) {
  if (seconds > slowest.seconds) slowest = {seconds, who};
}

}  // namespace

std::string name_of(const Node& node) {
  return node.node_rank ? "node " + std::to_string(*node.node_rank) + " (" + node.host + ")"
                        : "node on " + node.host;
}

const char* word_of(MarkKind kind) {
  switch (kind) {
    case MarkKind::Failure:
      return "failure";
    case MarkKind::NodeLost:
      return "node lost";
    case MarkKind::Election:
      return "election";
    case MarkKind::Signal:
      return "signal";
    case MarkKind::Hang:
      return "hang";
    case MarkKind::Timeout:
      return "timeout";
    case MarkKind::Preemption:
      return "preemption";
    case MarkKind::LeftOut:
      return "node excluded";
    case MarkKind::Slow:
      return "slow rank";
    case MarkKind::Fault:
      break;
  }
  return "injected fault";
}

struct EventRecord {
  std::string run_id;
  std::string event;
  double time_s = 0;  // since 1970, wall clock
  std::optional<double> up_s{};
  EventJson fields;
};

Builder::Builder() = default;
Builder::~Builder() = default;

void Builder::take(std::string_view lines) {
  for (const std::string_view line : lines_of(lines)) {
    if (line.empty()) continue;
    if (records_ >= kMostRecords) {
      is_full_ = true;
      return;
    }
    EventJson fields = line.size() <= kMostLineBytes ? EventJson::parse(line, nullptr, false)
                                                     : EventJson(EventJson::value_t::discarded);
    const auto time = fields.is_object() ? seconds_of(text_of(fields, "time")) : std::nullopt;
    std::string event = fields.is_object() ? text_of(fields, "event") : "";
    if (!time || event.empty()) {
      ++unreadable_lines_;
      continue;
    }
    const std::pair key(text_of(fields, "host"), int_of(fields, "agent_pid"));
    if (!agents_.contains(key) && agents_.size() >= kMostAgents) {
      is_full_ = true;
      continue;
    }
    auto up = number_of(fields, "up_s");
    if (up && (*up < 0 || *up > kLongest)) up.reset();
    std::string run_id = text_of(fields, "run_id");
    agents_[key].push_back({.run_id = std::move(run_id),
                            .event = std::move(event),
                            .time_s = *time,
                            .up_s = up,
                            .fields = std::move(fields)});
    ++records_;
  }
}

namespace {

// State of one node while its events are processed.
struct NodeReading {
  Node node{};
  std::vector<std::string> devices{};  // by local rank
  std::vector<std::string> cpus{};
  std::string log_directory{};
  std::map<std::pair<int, int>, Rank> ranks{};  // by round and local rank
  std::optional<Phase> phase{};
  double phase_began_s = 0;
  int round = -1;
  std::optional<double> term{};

  void enter(Phase next, double at_s) {
    if (phase && at_s > phase_began_s && node.spans.size() < kMostSpans) {
      const bool is_silent = *phase == Phase::Start && next != Phase::Running;
      node.spans.push_back({is_silent ? Phase::Running : *phase, phase_began_s, at_s});
    }
    phase = next;
    phase_began_s = at_s;
  }
  Rank* rank_of(const EventJson& event) {
    const int local_rank = int_of(event, "local_rank");
    if (local_rank >= kMostLocalRanks) return nullptr;
    const std::pair key(int_of(event, "round"), local_rank);
    if (!ranks.contains(key) && ranks.size() >= std::size_t{4} * kMostLocalRanks) {
      // Of past rounds, only failures are shown.
      for (auto it = ranks.begin(); it != ranks.end() && it->first.first < round;)
        it = it->second.has_failed ? std::next(it) : ranks.erase(it);
      if (ranks.size() >= std::size_t{4} * kMostLocalRanks) return nullptr;
    }
    Rank& rank = ranks[key];
    rank.round = key.first;
    rank.local_rank = local_rank;
    rank.rank = int_of(event, "rank");
    if (const int pid = int_of(event, "pid"); pid > 0) rank.pid = pid;
    return &rank;
  }
};

void read_placements(NodeReading& reading, const EventJson& event) {
  const auto found = event.find("worker_placements");
  if (found == event.end() || !found->is_array()) return;
  for (const EventJson& placement : *found) {
    if (!placement.is_object() || reading.cpus.size() >= kMostLocalRanks) continue;
    reading.cpus.push_back(text_of(placement, "cpus"));
    reading.devices.push_back(joined(words_of(placement, "devices", 64, 64), ","));
  }
}

void read_start(Job& job, const EventJson& event) {
  if (job.command.empty()) job.command = words_of(event, "command", kMostWords, 4096);
  if (job.drun_version.empty()) job.drun_version = text_of(event, "drun_version");
  if (job.kernel.empty()) job.kernel = text_of(event, "kernel");
  const auto environment = event.find("environment");
  if (!job.environment.empty() || environment == event.end() || !environment->is_object()) return;
  for (const auto& [name, value] : environment->items()) {
    if (job.environment.size() == kMostWords) break;
    if (value.is_string())
      job.environment.emplace_back(cut(name, kMostNameBytes), cut(value.get<std::string>(), 4096));
  }
}

void add_mark(Job& job, MarkKind kind, double at_s, std::size_t node, std::string text) {
  if (job.marks.size() < kMostMarks) job.marks.push_back({kind, at_s, node, std::move(text)});
}

class JobReading {
 public:
  explicit JobReading(Job& job) : job_(job) {}

  void read(NodeReading& reading, std::size_t node, const std::string& name, const EventJson& event,
            double at_s) {
    if (name == "agent_started") {
      read_start(job_, event);
      read_placements(reading, event);
      reading.log_directory = text_of(event, "log_directory", 4096);
    } else if (name == "phase") {
      if (const auto phase = agent::phase_named(text_of(event, "phase"))) {
        reading.enter(*phase, at_s);
        has_phases_ = true;
      }
    } else if (name == "coordinator_joined") {
      const double term = number_of(event, "term").value_or(0);
      if (reading.term && term > *reading.term && term > 0)
        add_mark(job_, MarkKind::Election, at_s, node,
                 "joined a new coordinator, elected in term " +
                     std::to_string(static_cast<long>(std::min(term, 1e15))));
      reading.term = term;
    } else if (name == "round_began") {
      read_round(reading, event, at_s);
    } else if (name == "worker_started") {
      if (Rank* rank = reading.rank_of(event)) rank->began_s = at_s;
    } else if (name == "worker_alive") {
      if (Rank* rank = reading.rank_of(event); rank != nullptr && !rank->alive_s)
        rank->alive_s = at_s;
    } else if (name == "worker_failed") {
      read_failure(reading, node, event, at_s);
    } else if (name == "worker_ended") {
      read_end(reading, event, at_s);
    } else {
      read_rest(reading, node, name, event, at_s);
    }
  }

  void finish();

 private:
  Round* round_of(const EventJson& event) {
    const auto found = rounds_.find(int_of(event, "round"));
    return found == rounds_.end() ? nullptr : &found->second;
  }

  void read_round(NodeReading& reading, const EventJson& event, double at_s) {
    const int number = int_of(event, "round");
    reading.round = number;
    reading.node.node_rank = int_of(event, "node_rank");
    if (!rounds_.contains(number) && rounds_.size() >= kMostRounds) return;
    Round& round = rounds_[number];
    const bool is_new = round.world_size == 0;
    round.round = number;
    round.restarts = int_of(event, "restarts");
    round.world_size = std::max(1, int_of(event, "world_size"));
    round.node_count = int_of(event, "nodes");
    round.is_preflight = flag_of(event, "is_preflight");
    round.begin_s = is_new ? at_s : std::min(round.begin_s, at_s);
    round.end_s = std::max(round.end_s, at_s);
  }

  void read_failure(NodeReading& reading, std::size_t node, const EventJson& event, double at_s) {
    TimedFailure failure = failure_of(event, at_s);
    failure.host = reading.node.host;
    failure.node_rank = reading.node.node_rank.value_or(0);
    if (Rank* rank = reading.rank_of(event)) {
      rank->has_failed = true;
      rank->exit_code = exit_code(failure.status);
      rank->ended = to_string(failure.status);
      rank->ended_s = at_s;
    }
    add_mark(job_, MarkKind::Failure, at_s, node,
             "rank " + std::to_string(failure.rank) + ": " + to_string(failure.status));
    Round* round = round_of(event);
    if (round != nullptr && (!round->failure || at_s < round->failure->at_s))
      round->failure = std::move(failure);
  }

  void read_end(NodeReading& reading, const EventJson& event, double at_s) {
    Rank* rank = reading.rank_of(event);
    if (rank == nullptr) return;
    rank->ended_s = at_s;
    rank->exit_code = int_of(event, "exit_code");
    if (rank->ended.empty()) rank->ended = text_of(event, "ended");
    rank->stopped_by_drun = flag_of(event, "stopped_by_drun");
    if (const auto peak = number_of(event, "peak_memory_bytes"); peak && *peak >= 0 && *peak < 1e18)
      rank->peak_memory_bytes = static_cast<std::uint64_t>(*peak);
    if (const auto used = number_of(event, "processor_s"); used && *used >= 0 && *used < kLongest)
      rank->processor_s = used;
  }

  void read_rest(NodeReading& reading, std::size_t node, const std::string& name,
                 const EventJson& event, double at_s) {
    if (name == "round_stopping") {
      const std::string cause = text_of(event, "cause", 1024);
      last_stop_ = {at_s, node};
      Round* round = round_of(event);
      if (round != nullptr && round->reason.empty()) round->reason = cause;
      if (cause.starts_with("lost ") && lost_.insert(cause).second)
        add_mark(job_, MarkKind::NodeLost, at_s, node, cause);
    } else if (name == "round_ended") {
      Round* round = round_of(event);
      if (round == nullptr) return;
      const bool has_succeeded = flag_of(event, "succeeded");
      round->has_succeeded = has_succeeded && (!round->has_ended || round->has_succeeded);
      round->has_ended = true;
      round->end_s = std::max(round->end_s, at_s);
      for (TimedFailure& failure : failures_of(event, at_s))
        details_[{failure.round, failure.rank}] = std::move(failure);
    } else if (name == "hang_suspected") {
      add_mark(
          job_, MarkKind::Hang, at_s, node,
          "rank " + std::to_string(int_of(event, "rank")) + ": " + text_of(event, "signs", 1024));
    } else if (name == "hang_found") {
      if (Round* round = round_of(event)) round->reason = text_of(event, "cause", 1024);
      std::string stacks;
      for (const std::string& line : words_of(event, "evidence", kMostStackTextLines, 512))
        stacks += line + "\n";
      if (hang_stacks_.size() >= kMostHangs) hang_stacks_.erase(hang_stacks_.begin());
      hang_stacks_[int_of(event, "round")] = std::move(stacks);
    } else if (name == "node_left_out") {
      const std::string text = "node " + std::to_string(int_of(event, "left_out_node_rank")) +
                               " (" + text_of(event, "left_out_host") +
                               "): " + text_of(event, "reason", 1024);
      if (lost_.insert(text).second) add_mark(job_, MarkKind::LeftOut, at_s, node, text);
    } else if (name == "slow_found") {
      SlowRank slow{.node_rank = int_of(event, "slow_node_rank"),
                    .host = text_of(event, "slow_host"),
                    .percent = int_of(event, "slower_percent"),
                    .evidence = text_of(event, "evidence", 1024)};
      if (const auto rank = number_of(event, "slow_rank")) slow.rank = int_of(event, "slow_rank");
      const std::string text = drun::text_of(slow);
      if (job_.slow.size() >= kMostSlowRanks || !slow_.insert(text).second) return;
      add_mark(job_, MarkKind::Slow, at_s, node, text);
      job_.slow.push_back({.kind = SlowKind::Speed, .who = text});
    } else if (name == "fault_injected") {
      const std::optional<double> rank = number_of(event, "fault_rank");
      const std::string place = "node " + std::to_string(int_of(event, "fault_node_rank")) + " (" +
                                text_of(event, "fault_host") + ")";
      const std::string text = text_of(event, "fault") + (rank ? "" : " on " + place) +
                               ", in round " + std::to_string(int_of(event, "round"));
      if (faults_.insert(text).second) add_mark(job_, MarkKind::Fault, at_s, node, text);
    } else if (name == "signal") {
      add_mark(job_, MarkKind::Signal, at_s, node, text_of(event, "signal_name") + " ends the job");
    } else if (name == "job_ended") {
      reading.node.has_ended = true;
      if (text_of(event, "outcome") == "preempted" && job_.outcome != "preempted") {
        const auto [stop_s, stopped] = last_stop_.value_or(std::pair(at_s, node));
        add_mark(job_, MarkKind::Preemption, stop_s, stopped, text_of(event, "message", 1024));
      }
      read_timeouts(node, event, at_s);
      read_job_end(event, at_s);
    }
  }

  // Collectives that ranks of the node had reported as timed out before the job was stopped.
  void read_timeouts(std::size_t node, const EventJson& event, double at_s) {
    const auto found = event.find("timeouts");
    if (found == event.end() || !found->is_array()) return;
    const std::optional<double> now_s = seconds_of(text_of(event, "time"));
    for (const EventJson& timeout : *found) {
      if (!timeout.is_object()) continue;
      const std::string call = text_of(timeout, "call");
      const double first_s = seconds_of(text_of(timeout, "time")).value_or(*now_s);
      add_mark(job_, MarkKind::Timeout, std::max(0.0, at_s - std::max(0.0, *now_s - first_s)), node,
               ranks_text(ranks_of(timeout)) + " reported a timeout of " +
                   (call.empty() ? "a collective" : call));
    }
  }

  // All nodes report the same outcome, but one that did not take part may know less.
  void read_job_end(const EventJson& event, double at_s) {
    const std::string outcome = text_of(event, "outcome");
    const auto weight = [](const std::string& word) {
      return word == "failed"                               ? 4
             : word == "interrupted" || word == "preempted" ? 3
             : word == "succeeded"                          ? 2
                                                            : 1;
    };
    if (job_.outcome != "unknown" && weight(outcome) <= weight(job_.outcome)) return;
    job_.outcome = outcome;
    job_.restarts = int_of(event, "restarts");
    job_.message = text_of(event, "message", 4096);
    job_.failures = failures_of(event, at_s);
  }

  void add_details(TimedFailure& failure) const {
    const auto found = details_.find({failure.round, failure.rank});
    if (found == details_.end()) return;
    const double at_s = failure.at_s;
    failure = found->second;
    failure.at_s = at_s;
  }

  Job& job_;
  std::map<int, Round> rounds_;
  std::map<std::pair<int, int>, TimedFailure> details_;  // by round and rank
  std::set<std::string> lost_;
  std::set<std::string> faults_;
  std::set<std::string> slow_;
  std::map<int, std::string> hang_stacks_;                   // by round
  std::optional<std::pair<double, std::size_t>> last_stop_;  // time, node
  bool has_phases_ = false;
};

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

// Selects all ranks of the node's last reported round, and failures of earlier rounds.
void sort_ranks(NodeReading& reading) {
  for (auto& [key, rank] : reading.ranks) {
    const auto index = static_cast<std::size_t>(rank.local_rank);
    if (index < reading.cpus.size()) rank.cpus = reading.cpus[index];
    if (index < reading.devices.size()) rank.devices = reading.devices[index];
    if (!reading.log_directory.empty())
      rank.log = reading.log_directory + "/attempt_" + std::to_string(rank.round) + "/" +
                 std::to_string(rank.local_rank);
    if (key.first == reading.round)
      reading.node.ranks.push_back(std::move(rank));
    else if (rank.has_failed)
      reading.node.earlier_failures.push_back(std::move(rank));
  }
}

void add_up(Job& job) {
  const double nodes = static_cast<double>(std::max<std::size_t>(1, job.nodes.size()));
  for (Node& node : job.nodes) {
    for (const Span& span : node.spans)
      node.totals.at(agent::index_of(span.phase)) += span.end_s - span.begin_s;
    double known = 0;
    for (std::size_t i = 0; i < agent::kPhaseCount; ++i) {
      known += node.totals.at(i);
      job.ledger.at(i) += node.totals.at(i) / nodes;
      raise(job.slowest.at(i), node.totals.at(i), name_of(node));
    }
    // The node counts as waiting before its first event and after its last one.
    job.ledger.at(agent::index_of(Phase::Waiting)) += std::max(0.0, job.wall_s - known) / nodes;
    Slowest& start = job.slowest.at(agent::index_of(Phase::Start));
    for (const Rank& rank : node.ranks)
      if (rank.began_s && rank.alive_s)
        raise(start, *rank.alive_s - *rank.began_s, "rank " + std::to_string(rank.rank));
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Adds values that exceed both 1.5 times the median and the median plus 1 s.
void add_slow(Job& job, SlowKind kind, const std::vector<std::pair<double, std::string>>& all) {
  if (all.size() < 2) return;
  std::vector<double> values;
  values.reserve(all.size());
  for (const auto& [seconds, who] : all) values.push_back(seconds);
  const double usual = median(std::move(values));
  std::vector<Slow> slow;
  for (const auto& [seconds, who] : all)
    if (seconds > 1.5 * usual && seconds > usual + 1) slow.push_back({kind, who, seconds, usual});
  std::stable_sort(slow.begin(), slow.end(),
                   [](const Slow& a, const Slow& b) { return a.seconds > b.seconds; });
  slow.resize(std::min(slow.size(), kMostSlow));
  job.slow.insert(job.slow.end(), slow.begin(), slow.end());
}

void find_slow(Job& job) {
  std::vector<std::pair<double, std::string>> arrivals;
  std::vector<std::pair<double, std::string>> starts;
  std::vector<std::pair<double, std::string>> processor;
  const int last = job.rounds.empty() ? 0 : job.rounds.back().round;
  for (const Node& node : job.nodes) {
    arrivals.emplace_back(node.begin_s, name_of(node));
    for (const Rank& rank : node.ranks) {
      if (rank.round != last) continue;
      const std::string who = "rank " + std::to_string(rank.rank) + " on " + name_of(node);
      if (rank.began_s && rank.alive_s) starts.emplace_back(*rank.alive_s - *rank.began_s, who);
      if (rank.processor_s) processor.emplace_back(*rank.processor_s, who);
    }
  }
  add_slow(job, SlowKind::Arrival, arrivals);
  add_slow(job, SlowKind::Start, starts);
  add_slow(job, SlowKind::Processor, processor);
}

// The events of one process in order, with times by its steady clock.
struct AgentEvents {
  std::span<const EventRecord> records{};
  std::string host{};
  int pid = 0;
  std::vector<double> times{};  // of the records
  double shift = 0;

  double begin() const { return times.front() + shift; }
  double end() const { return times.back() + shift; }
  double time(std::size_t i) const { return times[i] + shift; }
};

bool begins_earlier(const AgentEvents& a, const AgentEvents& b) { return a.begin() < b.begin(); }

std::vector<double> times_of(std::span<const EventRecord> records) {
  const double base = records.front().time_s - records.front().up_s.value_or(0);
  std::vector<double> times;
  for (const EventRecord& record : records) {
    const double time = record.up_s ? base + *record.up_s : record.time_s;
    times.push_back(times.empty() ? time : std::clamp(time, times.back(), times.back() + kLongest));
  }
  return times;
}

// A restart of an agent with the same pid is a separate process.
void add_agents(std::vector<AgentEvents>& all, const std::string& host, int pid,
                std::span<const EventRecord> records) {
  while (!records.empty()) {
    const auto next =
        std::find_if(records.begin() + 1, records.end(),
                     [](const EventRecord& record) { return record.event == "agent_started"; });
    const auto count = static_cast<std::size_t>(next - records.begin());
    const auto own = records.first(count);
    all.push_back({.records = own, .host = host, .pid = pid, .times = times_of(own)});
    records = records.subspan(count);
  }
}

// The agents of the job with the run id of the agent that began last: those that overlap in time.
// Counts the other jobs.
std::vector<AgentEvents> agents_of_last_job(const std::vector<AgentEvents>& all,
                                            std::size_t& other_jobs) {
  constexpr double kClocks = 5;  // tolerance for clock differences between nodes
  const std::string run_id = all.back().records.front().run_id;
  std::vector<AgentEvents> agents;
  std::set<std::string> others;
  double begin_s = all.back().begin();
  for (auto agent = all.rbegin(); agent != all.rend(); ++agent) {
    const std::string& id = agent->records.front().run_id;
    if (id == run_id && agent->end() + kClocks >= begin_s) {
      begin_s = std::min(begin_s, agent->begin());
      agents.push_back(*agent);
    } else {
      others.insert(id + " " + std::to_string(static_cast<long long>(agent->begin() / 10)));
    }
  }
  other_jobs = others.size();
  return agents;
}

// Aligns the clocks: a round begins on all nodes at the same time.
void align_clocks(std::vector<AgentEvents>& agents) {
  std::vector<std::map<int, double>> begins;  // of each agent, by round
  for (const AgentEvents& agent : agents) {
    std::map<int, double>& own = begins.emplace_back();
    for (std::size_t i = 0; i < agent.records.size(); ++i)
      if (agent.records[i].event == "round_began")
        own.emplace(int_of(agent.records[i].fields, "round"), agent.time(i));
  }
  const std::map<int, double> common =
      *std::max_element(begins.begin(), begins.end(),
                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (std::size_t n = 0; n < agents.size(); ++n) {
    std::vector<double> differences;
    for (const auto& [round, time] : begins[n])
      if (const auto found = common.find(round); found != common.end())
        differences.push_back(time - found->second);
    if (!differences.empty()) agents[n].shift = -median(std::move(differences));
  }
}

// The agent's node without the contents of its events. `zero`: the begin of the job.
Node node_of(const AgentEvents& agent, double zero, const Builder::Now& now) {
  Node node;
  node.host = agent.host;
  node.agent_pid = agent.pid;
  node.begin_s = agent.begin() - zero;
  node.end_s = agent.end() - zero;
  const bool has_end = agent.records.back().event == "job_ended";
  node.is_running = !has_end && now.is_running && now.is_running(agent.host, agent.pid);
  if (node.is_running) node.end_s = std::max(node.end_s, now.since_epoch_s + agent.shift - zero);
  return node;
}

// Processes the events of all nodes in order of time, so that the first occurrence of each is
// found.
void read_in_order(const std::vector<AgentEvents>& agents, double zero,
                   std::vector<NodeReading>& readings, JobReading& job) {
  std::vector<std::tuple<double, std::size_t, std::size_t>> order;
  for (std::size_t n = 0; n < agents.size(); ++n)
    for (std::size_t i = 0; i < agents[n].records.size(); ++i)
      order.emplace_back(agents[n].time(i) - zero, n, i);
  std::sort(order.begin(), order.end());
  for (const auto& [at_s, n, i] : order) {
    const EventRecord& record = agents[n].records[i];
    job.read(readings[n], n, record.event, record.fields, at_s);
  }
}

void end_last_phase(NodeReading& reading) {
  constexpr double kFarewell = std::chrono::duration<double>(agent::kLongestFarewell).count();
  const Node& node = reading.node;
  if (reading.phase == Phase::Restarting && node.has_ended &&
      node.end_s - reading.phase_began_s < kFarewell)
    reading.phase = Phase::Stopping;
  reading.enter(Phase::Waiting, node.end_s);
}

// Sorts the nodes by node rank, and updates the marks' indices.
void take_nodes(Job& job, std::vector<NodeReading>& readings) {
  std::vector<std::size_t> places(readings.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&readings](std::size_t a, std::size_t b) {
    const Node& x = readings[a].node;
    const Node& y = readings[b].node;
    return std::pair(x.node_rank.value_or(1 << 30), x.begin_s) <
           std::pair(y.node_rank.value_or(1 << 30), y.begin_s);
  });
  std::vector<std::size_t> new_places(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    new_places[places[i]] = i;
    job.nodes.push_back(std::move(readings[places[i]].node));
  }
  for (Mark& mark : job.marks) mark.node = new_places[mark.node];
}

void add_notes(Job& job) {
  const auto cut_short = std::count_if(job.nodes.begin(), job.nodes.end(), [](const Node& node) {
    return !node.has_ended && !node.is_running;
  });
  if (cut_short > 0 && job.outcome != "running")
    job.notes.push_back("the events of " + std::to_string(cut_short) + " of " +
                        std::to_string(job.nodes.size()) +
                        " nodes end before the end of the job: drun was killed, or the file is "
                        "incomplete");
  const auto there = static_cast<int>(std::min<std::size_t>(job.nodes.size(), 1 << 20));
  if (there < job.node_count)
    job.notes.push_back("this report has the events of " + std::to_string(there) + " of " +
                        counted(job.node_count, "node") +
                        "; for all of them, run drun report with the event files of all nodes");
  if (job.unreadable_lines > 0)
    job.notes.push_back(counted(job.unreadable_lines, "line") +
                        (job.unreadable_lines == 1 ? " is not an event and is left out"
                                                   : " are not events and are left out"));
  if (job.other_jobs > 0)
    job.notes.push_back("the files also have events of " + counted(job.other_jobs, "other job") +
                        "; this page shows the job that began last");
}

}  // namespace

std::optional<Job> Builder::build(const Now& now) const {
  std::vector<AgentEvents> all;
  for (const auto& [key, records] : agents_) add_agents(all, key.first, key.second, records);
  if (all.empty()) return std::nullopt;
  std::sort(all.begin(), all.end(), begins_earlier);

  Job job;
  job.run_id = all.back().records.front().run_id;
  job.unreadable_lines = unreadable_lines_;
  std::vector<AgentEvents> agents = agents_of_last_job(all, job.other_jobs);
  align_clocks(agents);
  const AgentEvents& earliest = *std::min_element(agents.begin(), agents.end(), begins_earlier);
  job.started = text_of(earliest.records.front().fields, "time");

  std::vector<NodeReading> readings(agents.size());
  double end_s = 0;
  for (std::size_t n = 0; n < agents.size(); ++n) {
    readings[n].node = node_of(agents[n], earliest.begin(), now);
    end_s = std::max(end_s, readings[n].node.end_s);
  }
  job.wall_s = std::min(end_s, kLongest);
  JobReading reading(job);
  read_in_order(agents, earliest.begin(), readings, reading);
  bool is_running = false;
  for (NodeReading& each : readings) {
    end_last_phase(each);
    is_running = is_running || each.node.is_running;
    sort_ranks(each);
  }
  if (job.outcome == "unknown" && is_running) job.outcome = "running";
  take_nodes(job, readings);
  reading.finish();
  add_up(job);
  find_slow(job);
  std::stable_sort(job.marks.begin(), job.marks.end(),
                   [](const Mark& a, const Mark& b) { return a.at_s < b.at_s; });
  add_notes(job);
  if (is_full_) job.notes.emplace_back("there are too many events; the report lacks some of them");
  return job;
}

}  // namespace drun::timeline
