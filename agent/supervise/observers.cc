#include "agent/supervise/observers.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "agent/stacks/evidence_json.h"
#include "agent/status/log_query.h"
#include "agent/status/node_status.h"
#include "agent/status/redaction.h"
#include "rendezvous/coordinator/node_queries.h"

namespace drun::agent {
namespace {

// The coordinator itself waits up to kCensusLimit for the nodes.
constexpr std::chrono::seconds kJobLimit = kCensusLimit + std::chrono::seconds(1);
constexpr std::chrono::seconds kStacksLimit = rendezvous::kLookLimit + std::chrono::seconds(3);

constexpr std::chrono::seconds kLogsLimit = rendezvous::kLogLimit + std::chrono::seconds(1);

// The temporary directory is removed at the end unless streams go to files there.
bool keeps_logs(const OutputSpec& output) {
  if (output.log_dir) return !output.log_dir->empty();
  return std::any_of(output.streams.begin(), output.streams.end(),
                     [](const auto& streams) { return streams[0].to_file || streams[1].to_file; });
}

}  // namespace

Result<void> Observers::open(asio::io_context& io, const AgentSpec& spec, const Log& log,
                             Sources sources) {
  sources_ = std::move(sources);
  run_id_ = spec.join.run_id;
  Result<void> events =
      events_.open(io, spec.events_file, spec.keeps_events,
                   {.run_id = run_id_, .host = spec.host, .pid = static_cast<int>(getpid())}, log);
  if (!events) return events;
  utsname system{};
  uname(&system);
  write(AgentStarted{
      .local_world_size = spec.join.local_world_size,
      .command = redacted_command(spec.worker.argv),
      .drun_version = spec.drun_version,
      .kernel = std::string(system.sysname) + " " + system.release,
      .log_directory = keeps_logs(spec.output) ? sources_.status().log_directory : std::string(),
      .environment = reported_environment(spec.worker.environment),
      .placements = spec.worker.placements});
  write(PhaseBegan{Phase::Waiting});
  status_socket_.emplace(io, log, "drun",
                         [this](const std::string&, const StatusSocket::Reply& reply) {
                           reply(status_json(sources_.status()));
                         });
  job_.emplace(io, log, "drun-job", kJobLimit, sources_.ask_job, [this](const std::string& why) {
    return job_json(sources_.status(), {.note = why});
  });
  stacks_.emplace(
      io, log, "drun-stacks", kStacksLimit, sources_.ask_stacks,
      [this](const std::string& why) { return evidence_json({.notes = {why}}, run_id_); });
  logs_.emplace(
      io, log, "drun-logs", kLogsLimit,
      [this](std::uint64_t question, const std::string& request) {
        if (const std::optional<LogQuery> query = parse_log_request(request))
          return sources_.request_log(question, *query);
        answer(question, LogPart{.note = "malformed request"});
      },
      [](const std::string& why) { return log_answer({.note = why}); },
      StatusSocket::Requests::Line);
  return spec.web ? open_web(io, *spec.web, log) : Result<void>();
}

Result<void> Observers::open_web(asio::io_context& io, const Endpoint& place, const Log& log) {
  auto web = web::Server::open(io, place, [this](std::string_view method, auto page) {
    return web::answer(method, page, sources_.status);
  });
  if (!web) return web.error();
  web_ = *std::move(web);
  if (place.port == 0) log.info("metrics are on port " + std::to_string(web_->port()));
  return {};
}

void Observers::answer(std::uint64_t question, const Census& census) {
  if (job_) job_->answer(question, [&] { return job_json(sources_.status(), census); });
}

void Observers::answer(std::uint64_t question, const Evidence& evidence) {
  if (stacks_) stacks_->answer(question, [&] { return evidence_json(evidence, run_id_); });
}

void Observers::answer(std::uint64_t question, const LogPart& part) {
  if (logs_) logs_->answer(question, [&] { return log_answer(part); });
}

void Observers::close() {
  status_socket_.reset();
  job_.reset();
  stacks_.reset();
  logs_.reset();
  web_.reset();
}

}  // namespace drun::agent
