#include "agent/status/events.h"

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/output/file_writer.h"
#include "agent/wall_time.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

struct Told {
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

Told tell(const AgentStarted& started) {
  return {"agent_started",
          {{"local_world_size", started.local_world_size}, {"command", started.command}}};
}

Told tell(const RoundBegan& began) {
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

Told tell(const WorkerStarted& started) {
  return {"worker_started",
          {{"round", started.round},
           {"rank", started.rank},
           {"local_rank", started.local_rank},
           {"pid", started.pid}}};
}

Told tell(const WorkerFailed& failed) {
  const Failure& failure = failed.failure;
  return {"worker_failed",
          {{"round", failure.round},
           {"rank", failure.rank},
           {"local_rank", failure.local_rank},
           {"pid", failure.pid},
           {"exit_code", exit_code(failure.status)},
           {"ended", to_string(failure.status)},
           {"out_of_memory", failure.out_of_memory}}};
}

Told tell(const HangSuspectedHere& suspected) {
  const Failure& failure = suspected.failure;
  return {"hang_suspected",
          {{"round", failure.round},
           {"rank", failure.rank},
           {"local_rank", failure.local_rank},
           {"pid", failure.pid},
           {"signs", to_string(failure.status)}}};
}

Told tell(const HangFoundAnywhere& found) {
  return {"hang_found",
          {{"round", found.round},
           {"cause", found.cause},
           {"evidence", evidence_lines(found.evidence, 1000)}}};
}

Told tell(const NodeLeftOut& left_out) {
  const LeftOut& node = left_out.node;
  return {"node_left_out",
          {{"round", node.round},
           {"left_out_node_rank", node.node_rank},
           {"left_out_host", node.host},
           {"reason", node.reason}}};
}

Told tell(const RoundStopping& stopping) { return {"round_stopping", {{"round", stopping.round}}}; }

Told tell(const RoundEnded& ended) {
  return {"round_ended", {{"round", ended.round}, {"succeeded", ended.has_succeeded}}};
}

Told tell(const SignalCame& came) {
  return {"signal", {{"signal", came.signal}, {"signal_name", signal_name(came.signal)}}};
}

Told tell(const JobEnded& ended) {
  const Outcome& outcome = ended.outcome;
  Json fields{{"outcome", word_of(outcome.ending)},
              {"restarts", outcome.restarts},
              {"duration_s", in_seconds(outcome.duration)}};
  if (const auto* failed = std::get_if<WorkersFailed>(&outcome.ending)) {
    fields["root_cause_rank"] = failed->failures.front().rank;
  }
  if (const auto* not_run = std::get_if<NotRun>(&outcome.ending)) {
    fields["message"] = not_run->error.message;
  }
  return {"job_ended", std::move(fields)};
}

}  // namespace

std::string event_line(const Event& event, const EventPlace& place, WallTime time) {
  const Told told = std::visit([](const auto& happened) { return tell(happened); }, event);
  Json line{{"time", utc_time(time)},
            {"event", told.event},
            {"run_id", place.run_id},
            {"host", place.host},
            {"agent_pid", place.pid}};
  line.update(told.fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun::agent

namespace drun::agent {

class EventFile::Impl {
 public:
  Impl(asio::io_context& io, std::string path, EventPlace place, Log log, UniqueFd file)
      : io_(io),
        path_(std::move(path)),
        place_(std::move(place)),
        log_(std::move(log)),
        file_(std::make_shared<UniqueFd>(std::move(file))),
        writer_(io, log_, FileWriter::Listener{}) {}

  void write(const Event& event);
  void finish(std::optional<std::chrono::milliseconds> at_most);

 private:
  void complain(const std::string& reason);

  asio::io_context& io_;
  std::string path_;
  EventPlace place_;
  Log log_;
  std::shared_ptr<UniqueFd> file_;  // a write that hangs at the end holds it, too
  FileWriter writer_;
  std::size_t waiting_bytes_ = 0;
  bool has_complained_ = false;
};

void EventFile::Impl::write(const Event& event) {
  struct Write {
    std::string line;
    int error_number = 0;
    bool is_short = false;
  };
  const auto now =
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  auto write = std::make_shared<Write>();
  write->line = event_line(event, place_, now);
  if (waiting_bytes_ + write->line.size() > kMostEventBytes) return complain("it takes no events");
  waiting_bytes_ += write->line.size();
  writer_.run(
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
        if (write->error_number != 0) return complain(std::strerror(write->error_number));
        if (write->is_short) complain("a line was cut short");
      });
}

void EventFile::Impl::finish(std::optional<std::chrono::milliseconds> at_most) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + at_most.value_or(std::chrono::milliseconds(0));
  while (!writer_.is_idle() && (!at_most || Clock::now() < deadline)) {
    if (io_.stopped()) io_.restart();
    at_most ? io_.run_one_until(deadline) : io_.run_one();
  }
  writer_.abandon();
}

void EventFile::Impl::complain(const std::string& reason) {
  if (std::exchange(has_complained_, true)) return;
  log_.warning("--events=" + path_ + ": " + reason + "; events are missing from there");
}

EventFile::EventFile() = default;
EventFile::EventFile(EventFile&&) noexcept = default;
EventFile& EventFile::operator=(EventFile&&) noexcept = default;
EventFile::~EventFile() = default;

Result<EventFile> EventFile::open(asio::io_context& io, const std::string& path, EventPlace place,
                                  Log log) {
  const int links = path.starts_with("/dev/") ? 0 : O_NOFOLLOW;  // /dev/stderr, /dev/fd/3
  UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | links, 0600));
  if (!file) {
    const std::string reason = errno == ELOOP   ? "it is a symbolic link"
                               : errno == ENXIO ? "it is a pipe that nobody reads"
                                                : std::strerror(errno);
    return Error{ErrorCode::System,
                 "--events=" + path + ": " + reason + "; give a file that can be written"};
  }
  EventFile events;
  events.impl_ =
      std::make_unique<Impl>(io, path, std::move(place), std::move(log), std::move(file));
  return events;
}

void EventFile::write(const Event& event) {
  if (impl_) impl_->write(event);
}

void EventFile::finish(std::optional<std::chrono::milliseconds> at_most) {
  if (impl_) impl_->finish(at_most);
}

void write_started(EventFile& events, const World& world, const std::vector<int>& pids) {
  for (std::size_t i = 0; i < pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    if (pids[i] != 0)
      events.write(WorkerStarted{world.round, world.base_rank + local_rank, local_rank, pids[i]});
  }
}

}  // namespace drun::agent
