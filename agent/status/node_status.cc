#include "agent/status/node_status.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

#include "agent/wall_time.h"
#include "rendezvous/protocol/wire_fields.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

Json workers(const NodeStatus& status) {
  Json list = Json::array();
  if (!status.world) return list;
  for (std::size_t i = 0; i < status.pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    const int pid = status.pids[i];
    const bool has_logs = i < status.logs.size();
    const auto file = [](const std::string& path) {
      return path.empty() ? Json(nullptr) : Json(path);
    };
    list.push_back({{"rank", status.world->base_rank + local_rank},
                    {"local_rank", local_rank},
                    {"role", role_of(*status.world, local_rank).name},
                    {"pid", pid == 0 ? Json(nullptr) : Json(pid)},
                    {"state", pid == 0 ? "ended" : "running"},
                    {"label", has_logs ? Json(status.logs[i].label) : Json(nullptr)},
                    {"stdout_log", has_logs ? file(status.logs[i].stdout_file) : Json(nullptr)},
                    {"stderr_log", has_logs ? file(status.logs[i].stderr_file) : Json(nullptr)}});
  }
  return list;
}

Json programs(const std::vector<ProgramSpec>& specs) {
  if (specs.empty()) return nullptr;
  Json list = Json::array();
  for (const ProgramSpec& spec : specs)
    list.push_back({{"role", spec.role}, {"workers", spec.workers}, {"command", spec.argv}});
  return list;
}

// `of_job`: with the node.
Json failure_json(const std::optional<Failure>& last, bool of_job) {
  if (!last) return nullptr;
  Json json{{"time", utc_time(last->time)}, {"round", last->round}};
  if (of_job) json.update({{"node_rank", last->node_rank}, {"host", last->host}});
  json.update({{"rank", last->rank},
               {"pid", last->pid},
               {"exit_code", exit_code(last->status)},
               {"ended", to_string(last->status)},
               {"out_of_memory", last->out_of_memory}});
  return json;
}

}  // namespace

const char* word_of(NodePhase phase) {
  constexpr std::array kWords{"joining", "running", "stopping", "waiting"};
  return kWords.at(static_cast<std::size_t>(phase));
}

NodeStatus without_arguments(NodeStatus status) {
  const auto cut = [](std::vector<std::string>& argv, std::size_t arguments_at) {
    if (argv.size() > arguments_at) argv.resize(arguments_at);
  };
  cut(status.command, status.arguments_at);
  for (ProgramSpec& program : status.programs) cut(program.argv, program.arguments_at);
  return status;
}

std::string status_json(const NodeStatus& status) {
  const World world = status.world.value_or(World{});
  const auto if_world = [&status](Json value) { return status.world ? value : Json(nullptr); };
  const Json json{
      {"schema", "drun.status/1"},
      {"run_id", status.run_id},
      {"host", status.host},
      {"agent_pid", status.pid},
      {"drun_pid", status.parent_pid},
      {"command", status.command},
      {"programs", programs(status.programs)},
      {"phase", word_of(status.phase)},
      {"up_s", in_seconds(status.up)},
      {"phase_times_s", phase_times_json(status.times.phases)},
      {"nodes", status.world ? world.node_count : status.node_count},
      {"node_rank", if_world(world.node_rank)},
      {"world_size", if_world(world.world_size)},
      {"round", if_world(world.round)},
      {"restarts", if_world(world.restarts)},
      {"max_restarts", if_world(world.max_restarts)},
      {"round_up_s", if_world(in_seconds(status.round_up))},
      {"master_addr", if_world(world.master_addr)},
      {"master_port", if_world(world.master_port)},
      {"workers", workers(status)},
      {"last_failure", failure_json(status.last_failure, false)},
      {"log_directory", status.log_directory.empty() ? Json(nullptr) : Json(status.log_directory)},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

const char* word_of(JobPhase phase) {
  constexpr std::array kWords{"joining", "running", "stopping", "pausing", "ending"};
  return kWords.at(static_cast<std::size_t>(phase));
}

// The phase of a node, or why it is unknown.
const char* state_of(const CensusNode& node, const std::optional<NodeSummary>& summary,
                     JobPhase phase) {
  switch (node.presence) {
    case NodePresence::Answered:
      return summary ? agent::word_of(summary->phase) : "silent";
    case NodePresence::Asked:
      return "silent";
    case NodePresence::Coming:
      return phase == JobPhase::Finishing ? "ending" : "joining";
    case NodePresence::Lost:
      break;
  }
  return "lost";
}

Json node_json(const CensusNode& node, JobPhase phase) {
  const std::optional<NodeSummary> summary = decode_summary(node.answer);
  const NodeSummary known = summary.value_or(NodeSummary{});
  const auto if_known = [&](Json value) { return summary ? std::move(value) : Json(nullptr); };
  return {{"node_rank", node.node_rank ? Json(*node.node_rank) : Json(nullptr)},
          {"host", node.host},
          {"state", state_of(node, summary, phase)},
          {"workers", node.workers},
          {"workers_running", if_known(known.workers_running)},
          {"workers_failed", if_known(known.workers_failed)},
          {"up_s", if_known(in_seconds(known.up))},
          {"heard_s", in_seconds(node.heard)}};
}

Json left_out_json(const LeftOut& node) {
  return {{"node_rank", node.node_rank},
          {"host", node.host},
          {"round", node.round},
          {"reason", node.reason}};
}

JobPhase as_job(NodePhase phase) {
  if (phase == NodePhase::Running) return JobPhase::Running;
  return phase == NodePhase::Stopping ? JobPhase::Stopping : JobPhase::Joining;
}

// All that this node knows by itself.
Census own_census(const NodeStatus& own, const std::string& note) {
  Census census{.note = note};
  const World world = own.world.value_or(World{});
  census.job = {.endpoint = "",
                .phase = as_job(own.phase),
                .min_nodes = own.node_count,
                .max_nodes = own.node_count,
                .joined_nodes = own.world ? world.node_count : 0,
                .world_size = world.world_size,
                .restarts = world.restarts,
                .restarts_left = std::max(0, world.max_restarts - world.restarts),
                .max_restarts = world.max_restarts,
                .up = own.up,
                .round_up = own.round_up,
                .last_failure = own.last_failure};
  JobTimesSum times;
  times.add(world.node_rank, own.times);
  census.job.times = times.total();
  CensusNode self{.host = own.host,
                  .workers = static_cast<int>(own.pids.size()),
                  .answer = encode_summary(summary_of(own))};
  if (own.world) {
    census.job.round = world.round;
    census.job.is_preflight = world.is_preflight;
    self.node_rank = world.node_rank;
  }
  census.nodes.push_back(std::move(self));
  return census;
}

Json job_fields(const JobFacts& job) {
  return {{"phase", word_of(job.phase)},
          {"is_preflight", job.is_preflight},
          {"up_s", in_seconds(job.up)},
          {"round", job.round ? Json(*job.round) : Json(nullptr)},
          {"round_up_s", job.round ? Json(in_seconds(job.round_up)) : Json(nullptr)},
          {"restarts", job.restarts},
          {"restarts_left", job.restarts_left},
          {"max_restarts", job.max_restarts},
          {"min_nodes", job.min_nodes},
          {"max_nodes", job.max_nodes},
          {"joined_nodes", job.joined_nodes},
          {"spares", job.spares},
          {"world_size", job.world_size},
          {"phase_times_s", mean_times_json(job.times)},
          {"longest_phase_times", longest_times_json(job.times)}};
}

template <typename Archive>
void fields(Archive& archive, NodeSummary& summary) {
  rendezvous::word(archive, summary.phase, NodePhase::Waiting);
  archive.integer(summary.workers_running, rendezvous::kCount);
  archive.integer(summary.workers_failed, rendezvous::kCount);
  archive.duration(summary.up, rendezvous::kMostMilliseconds);
}

Json document(const NodeStatus& own, const Census& census) {
  Json json{{"schema", "drun.job/1"},
            {"run_id", own.run_id},
            {"endpoint", census.job.endpoint.empty() ? Json(nullptr) : Json(census.job.endpoint)},
            {"asked_host", own.host},
            {"agent_pid", own.pid},
            {"drun_pid", own.parent_pid},
            {"command", own.command},
            {"note", census.note.empty() ? Json(nullptr) : Json(census.note)}};
  json.update(job_fields(census.job));
  Json nodes = Json::array();
  for (const CensusNode& node : census.nodes) nodes.push_back(node_json(node, census.job.phase));
  Json left_out = Json::array();
  for (const LeftOut& node : census.job.left_out) left_out.push_back(left_out_json(node));
  json["nodes"] = std::move(nodes);
  json["nodes_not_listed"] = census.nodes_not_listed;
  json["missing_node_ranks"] = census.missing_ranks;
  json["left_out"] = std::move(left_out);
  json["slow"] = slow_json(census.job.slow);
  json["last_failure"] = failure_json(census.job.last_failure, true);
  return json;
}

}  // namespace

NodeSummary summary_of(const NodeStatus& status) {
  const auto running =
      std::count_if(status.pids.begin(), status.pids.end(), [](const int pid) { return pid != 0; });
  return {.phase = status.phase,
          .workers_running = static_cast<int>(running),
          .workers_failed = status.workers_failed,
          .up = status.up};
}

std::string encode_summary(NodeSummary summary) {
  std::string bytes;
  rendezvous::WireWriter writer(bytes);
  fields(writer, summary);
  return bytes;
}

std::optional<NodeSummary> decode_summary(std::string_view bytes) {
  NodeSummary summary;
  rendezvous::WireReader reader(bytes);
  fields(reader, summary);
  return reader.is_complete() ? std::optional(summary) : std::nullopt;
}

Json slow_json(const std::vector<SlowRank>& slow) {
  Json list = Json::array();
  for (const SlowRank& each : slow)
    list.push_back({{"rank", each.rank ? Json(*each.rank) : Json(nullptr)},
                    {"node_rank", each.node_rank},
                    {"host", each.host},
                    {"round", each.round},
                    {"slower_percent", each.percent},
                    {"evidence", each.evidence},
                    {"is_slow", each.is_slow}});
  return list;
}

std::string job_json(const NodeStatus& own, const Census& census) {
  const Json json = document(own, census.note.empty() ? census : own_census(own, census.note));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun::agent
