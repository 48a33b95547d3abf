#include "agent/node_status.h"

#include <nlohmann/json.hpp>

#include "agent/wall_time.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

Json workers(const NodeStatus& status) {
  Json list = Json::array();
  if (!status.world) return list;
  for (std::size_t i = 0; i < status.pids.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    const int pid = status.pids[i];
    list.push_back({{"rank", status.world->base_rank + local_rank},
                    {"local_rank", local_rank},
                    {"role", role_of(*status.world, local_rank).name},
                    {"pid", pid == 0 ? Json(nullptr) : Json(pid)},
                    {"state", pid == 0 ? "ended" : "running"}});
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

Json failure(const std::optional<Failure>& last) {
  if (!last) return nullptr;
  return {{"time", utc_time(last->time)},
          {"round", last->round},
          {"rank", last->rank},
          {"pid", last->pid},
          {"exit_code", exit_code(last->status)},
          {"ended", to_string(last->status)},
          {"out_of_memory", last->out_of_memory}};
}

}  // namespace

const char* word_of(NodePhase phase) {
  switch (phase) {
    case NodePhase::Joining:
      return "joining";
    case NodePhase::Running:
      return "running";
    case NodePhase::Stopping:
      return "stopping";
    case NodePhase::Waiting:
      break;
  }
  return "waiting";
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
      {"last_failure", failure(status.last_failure)},
      {"log_directory", status.log_directory.empty() ? Json(nullptr) : Json(status.log_directory)},
  };
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun::agent
