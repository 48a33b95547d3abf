#include "agent/status/events.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <utility>

#include "agent/diagnosis/error_text.h"
#include "agent/wall_time.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

struct NamedFields {
  const char* event = "";
  Json fields;
};

const char* word_of(const Ending& ending) {
  return std::visit(Overloaded{
                        [](const Succeeded&) { return "succeeded"; },
                        [](const WorkersFailed&) { return "failed"; },
                        [](const Interrupted&) { return "interrupted"; },
                        [](const NodeLost&) { return "node_lost"; },
                        [](const NotRun&) { return "not_run"; },
                        [](const Preempted&) { return "preempted"; },
                    },
                    ending);
}

constexpr std::size_t kMostTextBytes = std::size_t{8} << 10;
constexpr std::size_t kMostTailLineBytes = 1024;

Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

std::string cut(const std::string& text, std::size_t most_bytes) {
  return text.size() <= most_bytes ? text : text.substr(0, most_bytes) + "...";
}

// Of a long traceback, the end has the error; its other parts follow it.
std::string cut_traceback(const std::string& text) {
  constexpr std::size_t kMostOwnBytes = kMostTextBytes - (std::size_t{2} << 10);
  const std::size_t own = parts_of(text).traceback.size();
  if (text.size() <= kMostTextBytes || own <= kMostOwnBytes) return cut(text, kMostTextBytes);
  const std::size_t line_end = text.find('\n', own - kMostOwnBytes);
  const std::size_t begin = line_end < own - 1 ? line_end + 1 : own - kMostOwnBytes;
  return cut("...\n" + text.substr(begin), kMostTextBytes);
}

NamedFields fields_of(const AgentStarted& started) {
  Json environment = Json::object();
  for (const EnvironmentEntry& entry : started.environment) environment[entry.first] = entry.second;
  Json placements = Json::array();
  for (const WorkerPlacement& placement : started.placements)
    placements.push_back({{"cpus", ranges_text(placement.cpus)}, {"devices", placement.devices}});
  return {"agent_started",
          {{"local_world_size", started.local_world_size},
           {"command", started.command},
           {"drun_version", started.drun_version},
           {"kernel", started.kernel},
           {"log_directory", or_null(started.log_directory)},
           {"environment", std::move(environment)},
           {"worker_placements", std::move(placements)}}};
}

NamedFields fields_of(const PhaseBegan& began) {
  return {"phase", {{"phase", word_of(began.phase)}}};
}

NamedFields fields_of(const CoordinatorJoined& joined) {
  return {"coordinator_joined", {{"term", joined.term}}};
}

// Which worker it is. With the pid, unless the event has none.
template <typename OfWorker>
Json worker_json(const OfWorker& worker) {
  Json json{{"round", worker.round}, {"rank", worker.rank}, {"local_rank", worker.local_rank}};
  if constexpr (requires { worker.pid; }) json["pid"] = worker.pid;
  return json;
}

NamedFields fields_of(const WorkerStarted& started) {
  return {"worker_started", worker_json(started)};
}

NamedFields fields_of(const WorkerAlive& alive) { return {"worker_alive", worker_json(alive)}; }

NamedFields fields_of(const WorkerEnded& ended) {
  Json peak = nullptr;
  Json processor = nullptr;
  if (ended.usage) {
    peak = ended.usage->peak_memory_bytes;
    processor = static_cast<double>(ended.usage->processor_time.count()) / 1e6;
  }
  Json fields = worker_json(ended);
  fields.update({{"exit_code", exit_code(ended.status)},
                 {"ended", to_string(ended.status)},
                 {"stopped_by_drun", ended.stopped_by_drun},
                 {"peak_memory_bytes", std::move(peak)},
                 {"processor_s", std::move(processor)}});
  return {"worker_ended", std::move(fields)};
}

Json failures_json(const std::vector<Failure>& failures) {
  Json list = Json::array();
  for (const Failure& failure : failures) {
    if (list.size() == kMostEventFailures) break;
    Json tail = Json::array();
    for (const std::string& line : failure.stderr_tail)
      tail.push_back(cut(line, kMostTailLineBytes));
    list.push_back({{"rank", failure.rank},
                    {"local_rank", failure.local_rank},
                    {"node_rank", failure.node_rank},
                    {"host", failure.host},
                    {"pid", failure.pid},
                    {"round", failure.round},
                    {"exit_code", exit_code(failure.status)},
                    {"ended", to_string(failure.status)},
                    {"out_of_memory", failure.out_of_memory},
                    {"message", or_null(cut(failure.message, kMostTextBytes))},
                    {"traceback", or_null(cut_traceback(failure.traceback))},
                    {"stderr_tail", std::move(tail)},
                    {"stderr_file", or_null(failure.stderr_file)}});
  }
  return list;
}

Json ranks_json(const RankRanges& ranks) {
  Json list = Json::array();
  for (const RankRange& range : ranks) list.push_back({range.first, range.last});
  return list;
}

Json timeouts_json(const std::vector<ReportedTimeout>& timeouts) {
  Json list = Json::array();
  for (const ReportedTimeout& timeout : timeouts) {
    list.push_back({{"ranks", ranks_json(timeout.ranks)},
                    {"call", or_null(timeout.call)},
                    {"time", utc_time(timeout.first)}});
  }
  return list;
}

NamedFields fields_of(const RoundBegan& began) {
  const World& world = began.world;
  return {"round_began",
          {{"round", world.round},
           {"restarts", world.restarts},
           {"node_rank", world.node_rank},
           {"nodes", world.node_count},
           {"first_rank", world.base_rank},
           {"local_world_size", world.local_world_size},
           {"world_size", world.world_size},
           {"is_preflight", world.is_preflight},
           {"master_addr", world.master_addr},
           {"master_port", world.master_port}}};
}

NamedFields fields_of(const WorkerFailed& failed) {
  const Failure& failure = failed.failure;
  Json fields = worker_json(failure);
  fields.update({{"exit_code", exit_code(failure.status)},
                 {"ended", to_string(failure.status)},
                 {"out_of_memory", failure.out_of_memory}});
  return {"worker_failed", std::move(fields)};
}

NamedFields fields_of(const HangSuspectedHere& suspected) {
  Json fields = worker_json(suspected.failure);
  fields["signs"] = to_string(suspected.failure.status);
  return {"hang_suspected", std::move(fields)};
}

NamedFields fields_of(const HangFoundAnywhere& found) {
  return {"hang_found",
          {{"round", found.round},
           {"cause", found.cause},
           {"evidence", evidence_lines(found.evidence, 1000)}}};
}

NamedFields fields_of(const FaultInjectedAnywhere& injected) {
  const InjectedFault& fault = injected.fault;
  return {"fault_injected",
          {{"round", fault.round},
           {"fault", fault.fault},
           {"fault_rank", fault.rank ? Json(*fault.rank) : Json()},
           {"fault_node_rank", fault.node_rank},
           {"fault_host", fault.host}}};
}

NamedFields fields_of(const SlowRankFound& found) {
  const SlowRank& slow = found.slow;
  return {"slow_found",
          {{"round", slow.round},
           {"slow_rank", slow.rank ? Json(*slow.rank) : Json()},
           {"slow_node_rank", slow.node_rank},
           {"slow_host", slow.host},
           {"slower_percent", slow.percent},
           {"evidence", slow.evidence}}};
}

NamedFields fields_of(const NodeLeftOut& left_out) {
  const LeftOut& node = left_out.node;
  return {"node_left_out",
          {{"round", node.round},
           {"left_out_node_rank", node.node_rank},
           {"left_out_host", node.host},
           {"reason", node.reason}}};
}

NamedFields fields_of(const RoundStopping& stopping) {
  return {"round_stopping", {{"round", stopping.round}, {"cause", or_null(stopping.cause)}}};
}

NamedFields fields_of(const RoundEnded& ended) {
  return {"round_ended",
          {{"round", ended.round},
           {"succeeded", ended.has_succeeded},
           {"failures", failures_json(ended.failures)}}};
}

NamedFields fields_of(const SignalCame& came) {
  return {"signal", {{"signal", came.signal}, {"signal_name", signal_name(came.signal)}}};
}

NamedFields fields_of(const JobEnded& ended) {
  const Outcome& outcome = ended.outcome;
  Json fields{{"outcome", word_of(outcome.ending)},
              {"restarts", outcome.restarts},
              {"duration_s", in_seconds(outcome.duration)},
              {"timeouts", timeouts_json(ended.timeouts)}};
  if (const auto* failed = std::get_if<WorkersFailed>(&outcome.ending)) {
    fields["root_cause_rank"] = failed->failures.front().rank;
    fields["failures"] = failures_json(failed->failures);
  }
  // From all failures and their whole texts, which `failures` does not have.
  const Diagnosis diagnosis = diagnose(outcome);
  fields["diagnosis"] = diagnosis_json(diagnosis);
  fields["diagnosis_adds_to_headline"] = diagnosis.adds_to_headline;
  if (const auto* not_run = std::get_if<NotRun>(&outcome.ending)) {
    fields["message"] = not_run->error.message;
  }
  if (const auto* lost = std::get_if<NodeLost>(&outcome.ending)) {
    fields["message"] = "node " + std::to_string(lost->node_rank) + " (" + lost->host +
                        ") was lost: " + lost->reason;
  }
  if (const auto* preempted = std::get_if<Preempted>(&outcome.ending)) {
    fields["message"] = preempted->reason;
  }
  if (const auto* interrupted = std::get_if<Interrupted>(&outcome.ending)) {
    fields["message"] = signal_name(interrupted->signal) + " was sent to " + interrupted->host;
  }
  return {"job_ended", std::move(fields)};
}

}  // namespace

Json diagnosis_json(const Diagnosis& diagnosis) {
  if (diagnosis.fault == FaultClass::None) return nullptr;
  return {{"class", word_of(diagnosis.fault)},
          {"ranks", ranks_json(diagnosis.ranks)},
          {"exclude_node", diagnosis.exclude_node ? Json(*diagnosis.exclude_node) : Json(nullptr)},
          {"summary", diagnosis.summary},
          {"evidence", diagnosis.evidence},
          {"restart_helps", word_of(diagnosis.restart_helps)},
          {"advice", diagnosis.advice}};
}

std::string event_line(const Event& event, const EventPlace& place, WallTime time,
                       std::optional<std::chrono::microseconds> up) {
  const NamedFields named =
      std::visit([](const auto& happened) { return fields_of(happened); }, event);
  Json line{{"time", utc_time(time)},
            {"event", named.event},
            {"run_id", place.run_id},
            {"host", place.host},
            {"agent_pid", place.pid}};
  if (up) line["up_s"] = static_cast<double>(up->count()) / 1e6;
  line.update(named.fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

// A copy of stdout or stderr if `file` is the same regular file, as for /dev/stdout: output and
// events must share a position, or one overwrites the other.
std::optional<UniqueFd> own_output(int file) {
  struct stat about {};
  if (::fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat output {};
    if (::fstat(fd, &output) == 0 && output.st_dev == about.st_dev && output.st_ino == about.st_ino)
      return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  }
  return std::nullopt;
}

}  // namespace

Result<void> EventLog::open(asio::io_context& io, const std::string& file, bool keeps,
                            EventPlace place, const Log& log) {
  place_ = std::move(place);
  keeps_ = keeps;
  if (file.empty()) return {};
  const int links = file.starts_with("/dev/") ? 0 : O_NOFOLLOW;  // /dev/stderr, /dev/fd/3
  UniqueFd opened(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | links, 0600));
  if (!opened) {
    const std::string reason = errno == ELOOP   ? "it is a symbolic link"
                               : errno == ENXIO ? "it is a pipe without a reader"
                                                : system_message(errno);
    return Error{ErrorCode::System,
                 "--events=" + file + ": " + reason + "; give a file that can be written"};
  }
  if (std::optional<UniqueFd> output = own_output(opened.get())) opened = *std::move(output);
  path_ = file;
  log_ = log;
  io_ = &io;
  file_ = std::make_shared<UniqueFd>(std::move(opened));
  writer_ = std::make_unique<FileWriter>(io, log, FileWriter::Listener{});
  writer_->set_place("the file of --events", file);
  return {};
}

void EventLog::write(const Event& event) {
  if (!writer_ && !keeps_) return;
  const auto up =
      std::chrono::floor<std::chrono::microseconds>(std::chrono::steady_clock::now() - began_);
  std::string line = event_line(event, place_, wall_now(), up);
  const bool fits = kept_.size() + line.size() <= kMostKeptBytes;
  if (keeps_ && (fits || std::holds_alternative<JobEnded>(event))) kept_ += line;
  if (writer_) append(std::move(line));
}

void EventLog::append(std::string line) {
  struct Write {
    std::string line;
    int error_number = 0;
    bool is_short = false;
  };
  auto write = std::make_shared<Write>();
  write->line = std::move(line);
  if (waiting_bytes_ + write->line.size() > kMostEventBytes) return warn_once("it takes no events");
  waiting_bytes_ += write->line.size();
  writer_->run(
      [write, file = file_] {
        ssize_t written = 0;
        do {
          written = ::write(file->get(), write->line.data(), write->line.size());
        } while (written < 0 && errno == EINTR);
        if (written < 0) write->error_number = errno;
        write->is_short = written >= 0 && static_cast<std::size_t>(written) < write->line.size();
      },
      [this, write](bool has_run) {
        waiting_bytes_ -= write->line.size();
        if (!has_run) return;
        if (write->error_number != 0) return warn_once(system_message(write->error_number));
        if (write->is_short) warn_once("a line was cut short");
      });
}

void EventLog::warn_once(const std::string& reason) {
  if (std::exchange(has_warned_, true)) return;
  log_->warning("--events=" + path_ + ": " + reason + "; events are missing from there");
}

void EventLog::finish(const std::optional<FileWriter::Time>& deadline) {
  if (!writer_) return;
  writer_->keep_loop();
  run_until(
      *io_, [this] { return writer_->is_idle(); }, deadline);
  if (!writer_->is_idle()) warn_once("it does not answer");
  writer_->abandon();
}

void EventLog::write_started(const World& world, const std::vector<int>& pids) {
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    if (pids[i] != 0)
      write(WorkerStarted{world.round, world.base_rank + local_rank, local_rank, pids[i]});
  }
}

}  // namespace drun::agent
