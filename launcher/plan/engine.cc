#include "launcher/plan/engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/engines/detect.h"

namespace drun {
namespace {

using engines::EngineFact;
using engines::Facts;

bool has_place(const Options& options) {
  return is_given(options.master_addr) || is_given(options.rdzv_endpoint);
}

// Why the engine is not queried; absent if it is.
std::optional<std::string> reason_not_to_ask(const Options& options, const HostFacts& host) {
  if (options.engine == EngineChoice::None) return "--engine=none";
  if (options.standalone) return "--standalone means one node";
  if (options.nnodes && options.nnodes->max == 1) return "--nnodes=1 means one node";
  if (!options.nnodes && options.invoked_as == "torchrun")
    return "torchrun without --nnodes means one node";
  if (options.nnodes && (options.node_rank || options.has_node_range()) && has_place(options))
    return "number of nodes, node rank and address are given";
  if (variable(host, "TORCHELASTIC_RUN_ID") && variable(host, "LOCAL_RANK"))
    return "this is a worker of another agent";
  return std::nullopt;
}

Error engine_error(const Facts& facts, const std::string& reason) {
  return Error{ErrorCode::Usage, facts.engine + ": " + reason};
}

// Checks for values that are required before anything starts.
Result<void> check(const Facts& facts, const Options& options) {
  if (!facts.wrong.empty()) return engine_error(facts, facts.wrong);
  // In an elastic job the coordinator assigns the node ranks.
  const bool needs_rank = !options.node_rank && !options.has_node_range();
  if ((!options.nnodes && !facts.nodes) || (needs_rank && !facts.node_rank)) {
    return engine_error(facts, "it started this drun, but does not set " + facts.missing +
                                   "; set --nnodes, --node-rank and --master-addr, or "
                                   "--engine=none to run on this node only");
  }
  const int nodes = options.nnodes ? options.nnodes->max : facts.nodes->value;
  if (facts.nodes && facts.nodes->value != nodes && needs_rank) {
    const auto source = options.sources.find("--nnodes");
    return engine_error(facts, (source == options.sources.end() ? "--nnodes" : source->second) +
                                   " asks for " + std::to_string(nodes) + " nodes, but " +
                                   facts.nodes->from + " says " +
                                   std::to_string(facts.nodes->value) +
                                   "; remove --nnodes, or start that many agents");
  }
  if (nodes > 1 && !has_place(options) && !facts.master_addr)
    return engine_error(facts, facts.no_master);
  return {};
}

// Uses the engine's value if the user gave none.
template <typename Field, typename T>
void fill(Options& options, Field& field, const char* name,
          const std::optional<EngineFact<T>>& fact) {
  if (field || !fact) return;
  field = fact->value;
  options.sources[name] = fact->from;
}

void fill_in_places(Options& options, const Facts& facts) {
  if (is_given(options.rdzv_endpoint)) return;
  const bool is_c10d = options.rdzv_backend.value_or("static") == "c10d";
  const bool is_workers_store = options.store == StoreHost::Worker;
  if (!is_given(options.master_addr)) options.master_addr.reset();
  if (is_c10d || is_workers_store) {
    std::optional<EngineFact<int>> port = is_c10d ? facts.master_port : facts.meeting_port;
    if (options.master_port && !is_workers_store)
      port = EngineFact<int>{*options.master_port, options.sources["--master-port"]};
    const std::string addr = options.master_addr ? *options.master_addr : facts.master_addr->value;
    const int number = port ? port->value : kMeetingPort;
    options.rdzv_endpoint =
        to_string(Endpoint{.host = addr, .port = static_cast<std::uint16_t>(number)});
    options.sources["--rdzv-endpoint"] =
        options.master_addr ? options.sources["--master-addr"] : facts.master_addr->from;
    if (port) options.sources["--rdzv-endpoint"] += "; " + port->from;
  }
  if (is_c10d && !is_workers_store) {  // they are the endpoint now
    options.master_addr.reset();
    options.master_port.reset();
  }
  if (is_c10d) return;
  fill(options, options.master_addr, "--master-addr", facts.master_addr);
  fill(options, options.master_port, "--master-port", facts.master_port);
}

// Resolves the name of a Slurm node that name services do not know.
void resolve_master(Facts& facts, const Options& given, const HostFacts& host, PlanNotes& notes) {
  if (has_place(given) || !facts.is_slurm_name || !host.addresses_of || !host.slurm_addresses)
    return;
  const std::string name = facts.master_addr->value;
  if (!host.addresses_of(name).empty()) return;
  for (const std::string& address : host.slurm_addresses(name)) {
    if (host.addresses_of(address).empty()) continue;
    facts.master_addr = EngineFact<std::string>{
        address, facts.master_addr->from + " and scontrol show node " + name};
    return;
  }
  notes.warnings.push_back("node 0 is " + name + " according to " + facts.master_addr->from +
                           ", but this name cannot be resolved here, and scontrol has no usable "
                           "address for it; set --master-addr");
}

// torchrun ignores MASTER_ADDR. Warn if it differs from the engine's address.
void remark_master(const Facts& facts, const Options& given, const HostFacts& host,
                   PlanNotes& notes) {
  const auto exported = variable(host, "MASTER_ADDR");
  if (has_place(given) || !is_given(exported) || !facts.master_addr) return;
  if (*exported == facts.master_addr->value) return;
  notes.warnings.push_back("MASTER_ADDR=" + *exported + " is ignored: according to " +
                           facts.master_addr->from + " node 0 is " + facts.master_addr->value +
                           "; to use the other one, set --master-addr=" + *exported);
}

void take(const Facts& facts, ResolvedOptions& settled) {
  Options& options = settled.options;
  if (!options.nnodes) {
    options.nnodes = NodeRange{facts.nodes->value, facts.nodes->value};
    options.sources["--nnodes"] = facts.nodes->from;
  }
  if (!options.has_node_range()) fill(options, options.node_rank, "--node-rank", facts.node_rank);
  fill(options, options.rdzv_id, "--rdzv-id", facts.run_id);
  // Use only the granted GPUs that this process sees.
  std::optional<EngineFact<int>> workers = facts.workers;
  const bool are_gpus = workers && workers->from.find("GPUS") != std::string::npos;
  if (are_gpus && settled.host.gpus > 0)
    workers->value = std::min(workers->value, settled.host.gpus);
  fill(options, options.nproc_per_node, "--nproc-per-node", workers);
  if (facts.cpus) settled.host.usable_cpus = std::min(settled.host.usable_cpus, facts.cpus->value);
  if (options.nnodes->max > 1) fill_in_places(options, facts);
}

void remove_foreign(ResolvedOptions& settled) {
  auto& environment = settled.host.environment;
  for (const auto& [name, value] : environment) {
    if (engines::is_foreign(name)) settled.removed.push_back(name);
  }
  std::erase_if(environment, [](const auto& entry) { return engines::is_foreign(entry.first); });
}

}  // namespace

Result<ResolvedOptions> settle(const Options& options, const HostFacts& host, PlanNotes& notes) {
  ResolvedOptions settled{.options = options, .host = host};
  if (options.engine == EngineChoice::Auto) remove_foreign(settled);
  if (const auto reason = reason_not_to_ask(options, host)) {
    settled.engine = "not asked: " + *reason;
    return settled;
  }
  const engines::EngineContext context{
      .variables = [&host](std::string_view name) { return variable(host, name); },
      .hostname = host.hostname,
      .file_text = host.file_text,
      .addresses = host.addresses,
      .addresses_of = host.addresses_of,
      .random_id = host.random_id,
      .meeting = host.meeting};
  std::optional<Facts> facts = engines::detect(context);
  if (!facts) {
    settled.engine = "none";
    return settled;
  }
  settled.engine = facts->engine;
  if (const Result<void> is_whole = check(*facts, options); !is_whole) return is_whole.error();
  const int nodes = options.nnodes ? options.nnodes->max : facts->nodes->value;
  if (nodes > 1) resolve_master(*facts, options, host, notes);
  take(*facts, settled);
  if (settled.options.nnodes->max > 1) remark_master(*facts, options, host, notes);
  notes.warnings.insert(notes.warnings.end(), facts->warnings.begin(), facts->warnings.end());
  if (variable(host, "RANK") || variable(host, "WORLD_SIZE"))
    notes.notes.emplace_back("RANK and WORLD_SIZE are ignored: drun sets them for its workers");
  return settled;
}

Origins origins_of(const ResolvedOptions& settled, const JoinSpec& join) {
  Origins origins{.engine = settled.engine, .values = {}, .removed = settled.removed};
  const auto add = [&](const char* what, const std::string& value, const char* option) {
    const auto found = settled.options.sources.find(option);
    const bool has_source = found != settled.options.sources.end();
    origins.values.push_back({what, value, has_source ? found->second : "default"});
  };
  const bool has_endpoint = is_given(settled.options.rdzv_endpoint);
  if (join.elastic) {
    add("nodes", std::to_string(join.elastic->min_nodes) + " to " + std::to_string(join.node_count),
        "--nnodes");
  } else {
    add("nodes", std::to_string(join.node_count), "--nnodes");
    add("node rank", std::to_string(join.node_rank), "--node-rank");
  }
  add("workers", std::to_string(join.local_world_size), "--nproc-per-node");
  add("run id", join.run_id, "--rdzv-id");
  if (join.node_count == 1) return origins;
  if (has_endpoint)
    add("endpoint",
        join.etcd            ? "etcd at " + to_string(join.etcd->endpoints)
        : join.seats.empty() ? to_string(join.endpoint)
                             : to_string(join.seats),
        "--rdzv-endpoint");
  if (has_endpoint && join.store_host == StoreHost::Agent) return origins;
  add("master address", join.master_addr, "--master-addr");
  add("master port", std::to_string(join.master_port), "--master-port");
  return origins;
}

std::string origins_text(const Origins& origins) {
  std::string text = "engine       " + origins.engine + "\n";
  for (const Origin& each : origins.values)
    text += "             " + each.what + " " + each.value + ": " + each.from + "\n";
  if (origins.removed.empty()) return text;
  text += "             removed for workers";
  for (const std::string& name : origins.removed) text += " " + name;
  return text + "\n";
}

}  // namespace drun
