#include "worker_lib/start/identity.h"

#include <charconv>
#include <utility>
#include <vector>

#include "worker_lib/start/engines.h"

namespace drun::worker {
namespace {

Error usage(std::string message) { return Error{ErrorCode::Usage, std::move(message)}; }

// "Open MPI's OMPI_COMM_WORLD_RANK says ..." would be long; the numbers and their owner do.
std::string place(const EngineReport& report) {
  const auto text = [](std::optional<int> number) {
    return number ? std::to_string(*number) : std::string("?");
  };
  return std::string(report.engine) + " rank " + text(report.told.rank) + " of " +
         text(report.told.size);
}

bool contradict(std::optional<int> left, std::optional<int> right) {
  return left && right && *left != *right;
}
bool contradict(const Numbers& left, const Numbers& right) {
  return contradict(left.rank, right.rank) || contradict(left.size, right.size) ||
         contradict(left.local_rank, right.local_rank) ||
         contradict(left.local_size, right.local_size);
}

Error half_told(const EngineReport& report) {
  return usage("of " + std::string(report.engine) +
               "'s variables these are not set: " + report.missing +
               "; start this program with mpirun, mpiexec, srun or drun, or set RANK, WORLD_SIZE, "
               "MASTER_ADDR and MASTER_PORT");
}

Error contradiction(const EngineReport& left, const EngineReport& right) {
  return usage("this process is " + place(left) + " and " + place(right) +
               ", and both cannot be: unset the variables of the one that did not start it, or "
               "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
}

// The innermost that is whole, if nothing inside it, and no other MPI launcher, says otherwise.
Result<EngineReport> choose(const std::vector<EngineReport>& reports) {
  for (const EngineReport& each : reports) {
    if (!each.wrong.empty()) return usage(each.wrong);
  }
  std::size_t at = 0;
  while (at < reports.size() && !reports[at].is_whole()) ++at;
  if (at == reports.size()) return half_told(reports.front());
  for (std::size_t other = 0; other < reports.size(); ++other) {
    const bool counts = other < at || (reports[other].is_mpi && reports[other].is_whole());
    if (counts && contradict(reports[other].told, reports[at].told)) {
      return contradiction(reports[other], reports[at]);
    }
  }
  return reports[at];
}

// FNV-1a: the same everywhere, unlike std::hash.
std::uint16_t derived_port(std::string_view job) {
  std::uint32_t hash = 2166136261u;
  for (const char each : job) hash = (hash ^ static_cast<unsigned char>(each)) * 16777619u;
  return static_cast<std::uint16_t>(kFirstDerivedPort + hash % kDerivedPorts);
}

Result<std::uint16_t> port_from(const std::string& text) {
  int port = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (ec != std::errc() || end != text.data() + text.size() || port < 1 || port > 65535) {
    return usage("MASTER_PORT=\"" + text + "\": expected a whole number from 1 to 65535");
  }
  return static_cast<std::uint16_t>(port);
}

Result<void> find_master(const Lookup& environment, const EngineReport& report, World& world) {
  // A world of one never goes there.
  const bool is_one_node = world.local_world_size == world.world_size;
  world.master_addr = text_of(environment, "MASTER_ADDR");
  if (world.master_addr.empty() && is_one_node) world.master_addr = "127.0.0.1";
  const std::string engine(report.engine);
  if (world.master_addr.empty()) {
    return usage(engine + " started " + std::to_string(world.local_world_size) + " of " +
                 std::to_string(world.world_size) +
                 " ranks on this node and does not tell where rank 0 is: export "
                 "MASTER_ADDR=<a name or address of rank 0's node> to all ranks");
  }
  const std::string port = text_of(environment, "MASTER_PORT");
  if (!port.empty()) {
    const Result<std::uint16_t> parsed = port_from(port);
    if (!parsed) return parsed.error();
    world.master_port = *parsed;
    return {};
  }
  if (world.run_id.empty() && world.world_size > 1) {
    return usage(engine +
                 " tells nothing from which all ranks could find the same port: export "
                 "MASTER_PORT=<a free port of rank 0's node> to all ranks");
  }
  world.master_port = derived_port(world.run_id);
  return {};
}

Result<Identity> from_engine(const EngineReport& report, const Lookup& environment,
                             const AncestorLookup& ancestor) {
  Identity identity{.self = {}, .source = std::string(report.engine)};
  WorkerIdentity& self = identity.self;
  self.rank = *report.told.rank;
  self.local_rank = *report.told.local_rank;
  World& world = self.world;
  world.world_size = *report.told.size;
  world.local_world_size = *report.told.local_size;
  world.base_rank = self.rank - self.local_rank;
  world.role_base_rank = world.base_rank;
  world.role_world_size = world.world_size;
  world.node_rank = report.node_rank;
  world.node_count = report.node_count;
  world.use_agent_store = false;
  identity.is_on_one_node = world.local_world_size == world.world_size;
  if (!report.job.empty()) world.run_id = identity.source + " " + report.job;
  if (report.engine == "Hydra" && identity.is_on_one_node && ancestor) {
    // Its ranks on a node are children of one process.
    const std::optional<int> proxy = ancestor("hydra_pmi_proxy");
    if (proxy) world.run_id = "Hydra " + std::to_string(*proxy);
  }
  if (const Result<void> found = find_master(environment, report, world); !found) {
    return found.error();
  }
  return identity;
}

Result<Identity> from_agent(const Lookup& environment) {
  Result<WorkerIdentity> self = from_environment(environment);
  if (!self) return self.error();
  Identity identity{.self = *std::move(self), .source = "environment"};
  if (environment("TORCHELASTIC_RUN_ID")) identity.source = "drun or torchrun";
  identity.is_on_one_node = identity.self.world.local_world_size == identity.self.world.world_size;
  return identity;
}

}  // namespace

Result<Identity> identify(const Lookup& environment, const AncestorLookup& ancestor) {
  const std::vector<EngineReport> reports = read_engines(environment);
  const bool has_rank = !text_of(environment, "RANK").empty();
  const bool has_size = !text_of(environment, "WORLD_SIZE").empty();
  if (!has_rank && !has_size && !reports.empty()) {
    const Result<EngineReport> report = choose(reports);
    if (!report) return report.error();
    return from_engine(*report, environment, ancestor);
  }
  Result<Identity> identity = from_agent(environment);
  if (identity) return identity;
  Error error = identity.error();
  if (has_rank != has_size && !reports.empty()) {
    error.message += std::string("; or unset ") + (has_rank ? "RANK" : "WORLD_SIZE") +
                     ", and the variables of " + std::string(reports.front().engine) + " count";
  } else if (!has_rank && !has_size && is_outside_slurm_step(environment)) {
    error.message += "; in a job of Slurm's, start it with srun";
  }
  return error;
}

}  // namespace drun::worker
