#include "agent/supervise/observers.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/stacks/evidence.h"
#include "agent/stacks/evidence_json.h"
#include "agent/status/log_query.h"
#include "agent/status/node_status.h"
#include "agent/status/redaction.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::agent {

using rendezvous::Query;
using rendezvous::QueryKind;
using rendezvous::QueryResult;

namespace {

// Why there is no answer.
std::string note_of(const QueryResult& result) {
  return result.note.empty() ? "the answer is malformed" : result.note;
}

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
  open_sockets(io, log);
  return spec.web ? open_web(io, *spec.web, log) : Result<void>();
}

void Observers::open_sockets(asio::io_context& io, const Log& log) {
  using Requests = StatusSocket::Requests;
  const auto query_of = [](QueryKind kind) {
    return [kind](const std::string&) { return std::optional(Query{.kind = kind}); };
  };
  status_socket_.emplace(io, log, "drun",
                         [this](const std::string&, const StatusSocket::Reply& reply) {
                           reply(status_json(sources_.status()));
                         });
  queries_.emplace(io, log, sources_.send_query);
  queries_->serve("drun-job", Requests::None, query_of(QueryKind::Status),
                  [this](const QueryResult& result) {
                    std::optional<Census> census = rendezvous::decode_census(result.answer);
                    if (!census) census = Census{.note = note_of(result)};
                    return job_json(sources_.status(), *census);
                  });
  queries_->serve("drun-stacks", Requests::None, query_of(QueryKind::Stacks),
                  [this](const QueryResult& result) {
                    std::optional<Evidence> evidence = decode_evidence(result.answer);
                    if (!evidence) evidence = Evidence{.notes = {note_of(result)}};
                    return evidence_json(*evidence, run_id_);
                  });
  queries_->serve(
      "drun-logs", Requests::Line,
      [](const std::string& request) {
        const std::optional<LogQuery> query = parse_log_request(request);
        return query ? std::optional(
                           Query{.kind = QueryKind::Log, .rank = query->rank, .question = request})
                     : std::nullopt;
      },
      [](const QueryResult& result) {
        return result.answer.empty() ? log_answer({.note = note_of(result)}) : result.answer;
      });
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

void Observers::close() {
  status_socket_.reset();
  queries_.reset();
  web_.reset();
}

}  // namespace drun::agent
