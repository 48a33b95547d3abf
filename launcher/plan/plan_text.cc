#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/nccl_ras/ras_service.h"
#include "agent/wall_time.h"
#include "agent/workers/worker_command.h"
#include "launcher/base/text.h"
#include "launcher/base/words.h"
#include "launcher/cli/option_values.h"
#include "launcher/placement/place.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/programs.h"
#include "rendezvous/net/endpoint.h"

namespace drun {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds_text(std::chrono::milliseconds time) {
  std::string text = Json(in_seconds(time)).dump();
  return (text.ends_with(".0") ? text.substr(0, text.size() - 2) : text) + " s";
}

// drun's variables for local rank 0. Some depend on the number of workers of preceding nodes and
// are only known in the round, unless this is the first or only node.
std::vector<EnvironmentEntry> first_workers_environment(const AgentSpec& agent) {
  const JoinSpec& join = agent.join;
  World world;
  world.run_id = join.run_id;
  world.max_restarts = join.max_restarts;
  world.node_rank = join.node_rank;
  world.node_count = join.node_count;
  world.local_world_size = world.world_size = world.role_world_size = join.local_world_size;
  world.role = join.role;
  // With several programs, workers with this role may also run on other nodes.
  if (!join.roles.empty()) world.role_world_size = join.roles.front().workers;
  world.master_addr = join.master_addr;
  world.master_port = join.master_port;
  world.use_agent_store = join.store_host == StoreHost::Agent;
  const bool has_heartbeats =
      agent.hang_timeout.count() > 0 || join.node_count * join.local_world_size > 1;
  auto own =
      agent::own_environment(agent.worker, world, 0, "",
                             {.heartbeat_file = has_heartbeats ? "?" : "",
                              .ras_address = agent::ras::gives_place(agent) ? "127.0.0.1:?" : "",
                              .progress_file = "?"});
  for (auto& [name, value] : own) {
    const bool is_size = name == "WORLD_SIZE" || name == "ROLE_WORLD_SIZE";
    const bool is_rank = name == "RANK" || name == "ROLE_RANK";
    const bool is_port = (name == "MASTER_PORT" && join.master_port == 0) ||
                         (name == "MASTER_ADDR" && join.master_addr.empty());
    const bool is_file = name == "TORCHELASTIC_ERROR_FILE";
    const bool is_node = name == "GROUP_RANK" || name == "GROUP_WORLD_SIZE" || is_rank || is_size;
    const bool is_unknown =
        join.elastic ? is_node
                     : (is_size && join.node_count > 1) || (is_rank && join.node_rank > 0);
    if (is_unknown || is_port || is_file) value = "?";
  }
  const bool sets_threads = std::any_of(
      own.begin(), own.end(), [](const auto& entry) { return entry.first == "OMP_NUM_THREADS"; });
  for (const auto& entry : agent.worker.environment) {
    if (sets_threads && entry.first == "OMP_NUM_THREADS") continue;
    if (entry.first == "OMP_NUM_THREADS" || entry.first == "TORCH_NCCL_ASYNC_ERROR_HANDLING" ||
        entry.first == "TORCHELASTIC_SIGNALS_TO_HANDLE" || entry.first.starts_with("GLOO_ENABLE_"))
      own.push_back(entry);
  }
  return own;
}

std::string endpoint_text(const JoinSpec& join) {
  if (join.etcd)
    return "etcd at " + std::string(join.etcd->is_https ? "https://" : "") +
           to_string(join.etcd->endpoints);
  if (!join.seats.empty()) return to_string(join.seats);
  if (join.endpoint.port != 0) return to_string(join.endpoint);
  return bracketed_host(join.endpoint.host) + ", any free port";
}

std::string listens_text(const JoinSpec& join) {
  if (join.etcd) {
    const std::string port = std::to_string(join.endpoint.port);
    return " (this node listens at " + join.endpoint.host +
           (join.endpoint.port == 0 ? ", any free port" : ", port " + port) +
           (join.etcd->stands ? ", and coordinates if it is elected)" : ")");
  }
  if (!join.is_coordinator) return "";
  if (!join.seats.empty()) return " (this node listens, and coordinates if it is elected)";
  return join.may_be_member ? " (this node listens, unless another agent here does)"
                            : " (this node listens)";
}

std::string secret_text(const JoinSpec& join) {
  return join.secret ? "secret       from " + join.secret->from() + "\n" : "";
}

std::string node_text(const JoinSpec& join) {
  if (!join.elastic)
    return std::to_string(join.node_rank) + " of " + std::to_string(join.node_count);
  const std::string least = std::to_string(join.elastic->min_nodes);
  return "one of " + least + " to " + std::to_string(join.node_count) +
         ", node ranks assigned when they join";
}

std::string restarts_text(const JoinSpec& join) {
  const std::string most = std::to_string(join.max_restarts);
  if (join.restart.per_progress) return most + " since the last progress";
  return join.restart.window.count() == 0 ? most
                                          : most + " within " + seconds_text(join.restart.window);
}

std::string ranks_text(const JoinSpec& join) {
  if (join.elastic) return "ranks assigned when the nodes have joined";
  if (join.node_rank == 0 && join.local_world_size == 1) return "rank 0";
  if (join.node_rank == 0) return "ranks 0 to " + std::to_string(join.local_world_size - 1);
  return "ranks after those of node" + std::string(join.node_rank == 1 ? " 0" : "s 0 to ") +
         (join.node_rank == 1 ? "" : std::to_string(join.node_rank - 1));
}

const char* stream_text(const StreamPlan& stream) {
  if (stream.to_file) return stream.to_console ? "console+file" : "file";
  return stream.to_console ? "console" : "none";
}

std::string log_dir_text(const OutputSpec& output) {
  if (!output.log_dir) return "in the temporary directory";
  return output.log_dir->empty() ? "no files" : *output.log_dir;
}

// For the range [begin, end).
std::string range_text(std::size_t begin, std::size_t end) {
  return local_ranks_text(static_cast<int>(begin), static_cast<int>(end - begin));
}

// Groups local ranks with the same streams on one line: "0 to 3  stdout console, stderr file".
std::string streams_text(const OutputSpec& output) {
  std::string text;
  for (std::size_t i = 0, end = 0; i < output.streams.size(); i = end) {
    while (end < output.streams.size() && output.streams[end] == output.streams[i]) ++end;
    text += "             " + range_text(i, end) + ": stdout " + stream_text(output.streams[i][0]) +
            ", stderr " + stream_text(output.streams[i][1]) + "\n";
  }
  return text;
}

// Groups local ranks with the same placement.
std::string places_text(const std::vector<WorkerPlacement>& places) {
  if (places.empty()) return "placement    none\n";
  std::string text;
  for (std::size_t i = 0, end = 0; i < places.size(); i = end) {
    while (end < places.size() && places[end] == places[i]) ++end;
    text += (i == 0 ? "placement    " : "             ") + range_text(i, end) + ": " +
            placement_text(places[i]) + "\n";
  }
  return text;
}

std::string wrap_text(const WrapSpec& wrap) {
  if (wrap.argv.empty()) return "";
  const auto text_of = [](int rank) { return std::to_string(rank); };
  return "wrapped in   " + shell_quoted(wrap.argv) +
         (wrap.ranks.empty() ? ", every rank\n"
                             : ", ranks " + joined(wrap.ranks, ", ", text_of) + "\n");
}

Json wrap_json(const WrapSpec& wrap) {
  if (wrap.argv.empty()) return nullptr;
  return Json{{"command", wrap.argv},
              {"ranks", wrap.ranks.empty() ? Json(nullptr) : Json(wrap.ranks)}};
}

std::string store_text(const JoinSpec& join) {
  if (join.store_host == StoreHost::Worker) return "left to rank 0";
  if (join.store_memory_bytes == kStoreMemoryBytes) return "served by drun";
  return "served by drun, at most " + memory_size_text(join.store_memory_bytes);
}

std::string preload_text(const PreloadSpec& preload) {
  if (preload.modules.empty()) return "";
  return "preload      " + joined(preload.modules, ", ") + ", within " +
         seconds_text(preload.import_timeout) + "\n";
}

}  // namespace

std::string plan_text(const Plan& plan) {
  const AgentSpec& agent = plan.agent;
  const JoinSpec& join = agent.join;
  std::string text =
      "run id       " + join.run_id + "\n" +                                 //
      "node         " + node_text(join) + ", host " + agent.host + "\n" +    //
      "workers      " + std::to_string(join.local_world_size) + " here, " +  //
      ranks_text(join) + "\n" +                                              //
      "endpoint     " + endpoint_text(join) + listens_text(join) +           //
      ", join timeout " + seconds_text(join.join_timeout) + "\n" +           //
      secret_text(join) +                                                    //
      "store        " + store_text(join) + "\n" +                            //
      origins_text(plan.origins) + "restarts     " + restarts_text(join) + "\n" +
      (agent.hang_timeout.count() == 0
           ? ""
           : "hung after   " + seconds_text(agent.hang_timeout) + " without activity\n") +
      (agent.worker.programs.empty() ? "command      " + shell_quoted(agent.worker.argv) + "\n"
                                     : programs_text(agent.worker.programs)) +
      preload_text(agent.worker.preload) + wrap_text(agent.worker.wrap) +
      places_text(agent.worker.placements) + "output       " +
      std::string(option_word(kOutputWords, agent.output.mode)) +
      (agent.output.has_timestamps ? ", with timestamps" : "") +
      (agent.output.gathers ? ", of all nodes on node 0" : "") +
      "; files: " + log_dir_text(agent.output) + "\n" + streams_text(agent.output) +
      "environment  of local rank 0, in addition to this shell's (?: known when the nodes have "
      "joined)\n";
  for (const auto& [name, value] : first_workers_environment(agent))
    text += "             " + name + "=" + (value == "?" ? "?" : shell_quoted(value)) + "\n";
  for (const std::string& note : plan.notes) text += "note         " + note + "\n";
  for (const std::string& warning : plan.warnings) text += "warning      " + warning + "\n";
  if (plan.cannot_start) text += "cannot start " + plan.cannot_start->message + "\n";
  return text;
}

std::string plan_json(const Plan& plan) {
  const AgentSpec& agent = plan.agent;
  const JoinSpec& join = agent.join;
  Json streams = Json::array();
  for (std::size_t i = 0; i < agent.output.streams.size(); ++i) {
    streams.push_back(Json{{"local_rank", i},
                           {"stdout", stream_text(agent.output.streams[i][0])},
                           {"stderr", stream_text(agent.output.streams[i][1])}});
  }
  Json origins = Json::array();
  for (const Origin& each : plan.origins.values)
    origins.push_back(Json{{"what", each.what}, {"value", each.value}, {"from", each.from}});
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  const Json json{
      {"schema", "drun.plan/1"},
      {"run_id", join.run_id},
      {"node_rank", join.elastic ? Json(nullptr) : Json(join.node_rank)},
      {"nodes", join.node_count},
      {"min_nodes", join.elastic ? join.elastic->min_nodes : join.node_count},
      {"workers_per_node", join.local_world_size},
      {"engine", Json{{"name", plan.origins.engine},
                      {"values", origins},
                      {"removed_variables", plan.origins.removed}}},
      {"max_restarts", join.max_restarts},
      {"role", join.role},
      {"rendezvous", Json{{"endpoint", endpoint_text(join)},
                          {"is_coordinator", join.is_coordinator},
                          {"secret", join.secret ? Json(join.secret->from()) : Json(nullptr)},
                          {"store", join.store_host == StoreHost::Agent ? "agent" : "worker"},
                          {"store_memory_bytes", join.store_memory_bytes},
                          {"join_timeout_s", in_seconds(join.join_timeout)},
                          {"heartbeat_timeout_s", in_seconds(join.heartbeat_timeout)}}},
      {"command", agent.worker.argv},
      {"programs", programs_json(agent.worker.programs)},
      {"wrap", wrap_json(agent.worker.wrap)},
      {"preload", agent.worker.preload.modules},
      {"environment", variables_json(first_workers_environment(agent))},
      {"placement", placement_json(agent.worker.placements)},
      {"output", Json{{"mode", option_word(kOutputWords, agent.output.mode)},
                      {"timestamps", agent.output.has_timestamps},
                      {"gathers", agent.output.gathers},
                      {"log_dir", or_null(agent.output.log_dir)},
                      {"streams", streams}}},
      {"stdin", agent.worker.stdin_source == StdinSource::Inherited
                    ? "inherited"
                    : option_word(kStdinWords, agent.worker.stdin_source)},
      {"hang_timeout_s",
       agent.hang_timeout.count() == 0 ? Json(nullptr) : Json(in_seconds(agent.hang_timeout))},
      {"shutdown_timeout_s", in_seconds(agent.shutdown_timeout)},
      {"leftovers", option_word(kLeftoverWords, agent.leftovers)},
      {"termination_signals", agent.termination_signals},
      {"report", or_null(plan.report_file)},
      {"html_report", or_null(plan.html_report_file)},
      {"events", plan.agent.events_file.empty() ? Json(nullptr) : Json(plan.agent.events_file)},
      {"metrics", agent.web ? Json(to_string(*agent.web)) : Json(nullptr)},
      {"notes", plan.notes},
      {"warnings", plan.warnings},
      {"cannot_start", plan.cannot_start ? Json(plan.cannot_start->message) : Json(nullptr)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun
