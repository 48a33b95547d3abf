#include "agent/supervise/observers.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/stacks/evidence.h"
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
  log_ = log;
  Result<void> events = events_.open(
      io, spec.events_file, spec.keeps_events,
      {.run_id = spec.join.run_id, .host = spec.host, .pid = static_cast<int>(getpid())}, log);
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
                  [](const QueryResult& result) {
                    const bool is_whole = decode_evidence(result.answer).has_value();
                    return is_whole ? result.answer : encode_evidence({.notes = {note_of(result)}});
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

// --- What happens on this node

void Observers::on_message(const rendezvous::CoordinatorMessage& message, bool is_between_rounds) {
  if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message)) {
    if (last_term_ != welcome->term) write(CoordinatorJoined{welcome->term});
    last_term_ = welcome->term;
  } else if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
    if (is_between_rounds && waiting->is_spare) enter(Phase::Standby);
  } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
    if (world_ && stop->round == world_->round) stop_cause_ = stop->cause;
  } else if (const auto* found = std::get_if<rendezvous::SlowFound>(&message)) {
    note_slow(found->slow);
  }
}

// A coordinator that takes over finds slow ranks again.
void Observers::note_slow(const SlowRank& slow) {
  const auto is_same = [&slow](const SlowRank& other) {
    return other.host == slow.host && other.rank == slow.rank;
  };
  if (std::any_of(slow_.begin(), slow_.end(), is_same) || slow_.size() >= kMostSlowRanks) return;
  slow_.push_back(slow);
  write(SlowRankFound{slow});
  // Not on the console of every node.
  if (world_ && world_->node_rank == 0) log_->warning(text_of(slow));
}

void Observers::begin_round(const World& world) {
  world_ = world;
  round_began_ = Clock::now();
  stop_cause_.clear();
  write(RoundBegan{world});
  note_phase(phases_.begin_round(round_began_));
}

void Observers::note_started(const std::vector<int>& pids) {
  events_.write_started(*world_, pids);
  note_phase(phases_.end_spawn(Clock::now()));
}

void Observers::note_first_print(int local_rank) {
  const int rank = world_->base_rank + local_rank;
  write(WorkerAlive{.round = world_->round, .rank = rank, .local_rank = local_rank});
  note_phase(phases_.note_print(rank, Clock::now()));
}

void Observers::note_failed(const Failure& failure) {
  last_failure_ = failure;
  write(WorkerFailed{failure});
  enter(Phase::Stopping);
}

void Observers::note_ended(const WorkerEnd& end) {
  write(WorkerEnded{.round = world_->round,
                    .rank = world_->base_rank + end.local_rank,
                    .local_rank = end.local_rank,
                    .pid = end.pid,
                    .status = end.status,
                    .stopped_by_drun = end.stopped_by_us,
                    .usage = end.usage});
}

void Observers::note_stop() { write(RoundStopping{world_->round, stop_cause_}); }

void Observers::note_round_end(bool has_succeeded,
                               const std::vector<rendezvous::SeenFailure>& failures) {
  RoundEnded ended{.round = world_->round, .has_succeeded = has_succeeded};
  for (const rendezvous::SeenFailure& each : failures) ended.failures.push_back(each.failure);
  write(ended);
}

}  // namespace drun::agent
