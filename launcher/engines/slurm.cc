#include "launcher/engines/detect.h"

#include "launcher/engines/engine_facts.h"
#include "launcher/engines/host_list.h"
#include "rendezvous/net/endpoint.h"

namespace drun::engines {
namespace {

// Slurm's special steps, such as that of a batch script, have numbers from this one on.
constexpr std::int64_t kFirstSpecialStep = 0xFFFFFFF0;

std::optional<EngineFact<std::string>> step_of(const Reading& reading) {
  for (const char* name : {"SLURM_STEP_ID", "SLURM_STEPID"}) {
    const auto fact = reading.text(name);
    if (!fact) continue;
    const std::optional<std::int64_t> id = whole_number(fact->value);
    return id && *id < kFirstSpecialStep ? fact : std::nullopt;
  }
  return std::nullopt;
}

// The number of GPUs in a list such as "0-3,6".
std::optional<EngineFact<int>> listed_gpus(Reading& reading, std::string_view name) {
  const auto list = reading.text(name);
  if (!list) return std::nullopt;
  const std::optional<int> count = size_of_list(list->value);
  if (count) return EngineFact<int>{*count, list->from};
  reading.blame(shown(*list) + " is no list of GPUs; unset it, or give --nproc-per-node");
  return std::nullopt;
}

// A number, or a list in some versions of Slurm.
std::optional<EngineFact<int>> gpus_on_node(Reading& reading) {
  constexpr std::string_view kName = "SLURM_GPUS_ON_NODE";
  const auto fact = reading.text(kName);
  const bool is_listed = fact && is_list(fact->value);
  return is_listed ? listed_gpus(reading, kName) : reading.number(kName, 0);
}

// One worker per GPU, or else one per CPU of -c. `list` is a list of GPUs, used if their number is
// not reported. The job's list belongs to its first node and may not match the step.
void read_grants(Reading& reading, Facts& facts, std::string_view list) {
  const auto on_node = reading.number("SLURM_CPUS_ON_NODE", 1);
  facts.cpus = reading.number("SLURM_CPUS_PER_TASK", 1);
  // A step with fewer CPUs (srun --exact) inherits this variable from its job.
  if (facts.cpus && on_node && on_node->value < facts.cpus->value) facts.cpus = on_node;
  facts.workers = gpus_on_node(reading);
  if (!facts.workers) facts.workers = listed_gpus(reading, list);
  if (!facts.workers || facts.workers->value == 0) facts.workers = facts.cpus;
  if (!facts.cpus) facts.cpus = on_node;
}

// Ports that Slurm reserved on all nodes of the step: "17123-17124", "17123,17130".
void read_reserved_ports(Reading& reading, Facts& facts) {
  const auto fact = reading.text("SLURM_STEP_RESV_PORTS");
  if (!fact) return;
  const auto ports = expand_host_list("[" + fact->value + "]");
  const auto port_at = [&](std::size_t at) -> std::optional<EngineFact<int>> {
    if (!ports || ports->size() <= at) return std::nullopt;
    const std::optional<std::int64_t> port = whole_number((*ports)[at]);
    if (!port || *port < 1 || *port > 65535) return std::nullopt;
    return EngineFact<int>{static_cast<int>(*port), fact->from};
  };
  facts.master_port = port_at(0);
  facts.meeting_port = port_at(1);
  if (!facts.master_port) reading.blame(shown(*fact) + " is no list of ports; give --master-port");
}

// Jobs with neighboring ids get different ports, and so do the steps of one job.
void derive_ports(const std::string& job, const std::string& step, Facts& facts) {
  const auto number = [](const std::string& text) {
    return static_cast<std::uint64_t>(whole_number(text).value_or(0));
  };
  constexpr std::uint64_t kStepsOfOneJob = 61;  // coprime to the number of ports
  const auto port_of = [&](std::uint64_t more) {
    const std::uint64_t at = number(job) % kDerivedPorts * kStepsOfOneJob + number(step) + more;
    return kFirstDerivedPort + static_cast<int>(at % kDerivedPorts);
  };
  const std::string from = "SLURM_JOB_ID and SLURM_STEP_ID";
  if (!facts.master_port) facts.master_port = EngineFact<int>{port_of(0), from};
  if (!facts.meeting_port) facts.meeting_port = EngineFact<int>{port_of(kDerivedPorts / 2), from};
}

std::string run_id_of(const Reading& reading, const std::string& job, const std::string& step) {
  std::string id = "slurm-" + job + "." + step;
  const auto requeues = reading.text("SLURM_RESTART_COUNT");
  if (requeues && whole_number(requeues->value).value_or(0) > 0) id += "-r" + requeues->value;
  return id;
}

// Checks the step's node list against this node's index.
void read_hosts(Reading& reading, Facts& facts) {
  const auto list = reading.needed_text("SLURM_STEP_NODELIST");
  if (!list || !facts.nodes) return;
  const auto hosts = expand_host_list(list->value);
  if (!hosts) return reading.blame(shown(*list) + " " + hosts.error().message);
  const auto count = static_cast<std::size_t>(facts.nodes->value);
  if (hosts->size() != count) {
    return reading.blame(shown(*list) + " has " + std::to_string(hosts->size()) + " hosts, but " +
                         facts.nodes->from + "=" + std::to_string(count) +
                         "; give --nnodes, --node-rank and --master-addr");
  }
  facts.master_addr = EngineFact<std::string>{hosts->front(), list->from};
  facts.is_slurm_name = true;
  if (!facts.node_rank) return;
  if (facts.node_rank->value >= facts.nodes->value) {
    return reading.blame("SLURM_NODEID=" + std::to_string(facts.node_rank->value) +
                         " is not under " + facts.nodes->from + "=" + std::to_string(count) +
                         "; unset them, or give --nnodes, --node-rank and --master-addr");
  }
  const std::string& own = (*hosts)[static_cast<std::size_t>(facts.node_rank->value)];
  const auto name = reading.text("SLURMD_NODENAME");
  if (name && name->value != own) {
    return reading.blame("SLURM_NODEID=" + std::to_string(facts.node_rank->value) + " is " + own +
                         " in " + list->from + ", but this is " + shown(*name) +
                         "; give --node-rank and --master-addr");
  }
}

// "srun -N3 -n3 --ntasks-per-node=1 -c32 drun". Without -c, the task and all workers would get one
// CPU.
std::string srun_command(const Reading& reading, int nodes) {
  const std::string count = std::to_string(nodes);
  const auto cpus = reading.text("SLURM_CPUS_ON_NODE");
  return "srun -N" + count + " -n" + count + " --ntasks-per-node=1 -c" +
         (cpus ? cpus->value : "CPUS") + " drun";
}

// Requires one task per node: Slurm binds each task to its share of the cores and GPUs, so one of
// several tasks could not start workers on all of them.
void check_tasks(Reading& reading, const Facts& facts) {
  std::optional<EngineFact<int>> tasks = reading.number("SLURM_STEP_NUM_TASKS", 1);
  if (!tasks) tasks = reading.needed_number("SLURM_NTASKS", 1);
  if (!tasks || !facts.nodes || tasks->value == facts.nodes->value) return;
  const int nodes = facts.nodes->value;
  const int workers = (tasks->value + nodes - 1) / nodes;
  reading.blame("this step has " + std::to_string(tasks->value) + " tasks on " +
                std::to_string(nodes) + (nodes == 1 ? " node" : " nodes") +
                ", and drun is one task a node that starts the workers itself; write " +
                srun_command(reading, nodes) + " --nproc-per-node=" + std::to_string(workers) +
                " ...");
}

}  // namespace

std::optional<Facts> slurm_step(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto step = step_of(reading);
  if (!step) return std::nullopt;
  const auto job = reading.text("SLURM_JOB_ID");
  facts.engine = "Slurm, step " + (job ? job->value : "?") + "." + step->value;
  facts.nodes = reading.needed_number("SLURM_STEP_NUM_NODES", 1);
  facts.node_rank = reading.needed_number("SLURM_NODEID", 0);
  check_tasks(reading, facts);
  read_hosts(reading, facts);
  if (!facts.master_addr) facts.no_master = "SLURM_STEP_NODELIST is not set; give --master-addr";
  read_grants(reading, facts, "SLURM_STEP_GPUS");
  read_reserved_ports(reading, facts);
  if (!job) {
    reading.miss("SLURM_JOB_ID");
    return facts;
  }
  derive_ports(job->value, step->value, facts);
  if (const auto id = run_id_from("", run_id_of(reading, job->value, step->value)))
    facts.run_id = EngineFact<std::string>{*id, "SLURM_JOB_ID and " + step->from};
  return facts;
}

std::optional<Facts> slurm_allocation(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto job = reading.text("SLURM_JOB_ID");
  if (!job || step_of(reading)) return std::nullopt;
  facts.engine = "Slurm, job " + job->value + " without a step";
  facts.nodes = reading.number("SLURM_JOB_NUM_NODES", 1);
  if (!facts.nodes) facts.nodes = reading.needed_number("SLURM_NNODES", 1);
  if (!facts.nodes) return facts;
  if (facts.nodes->value > 1) {
    reading.blame("job " + job->value + " has " + std::to_string(facts.nodes->value) +
                  " nodes, but srun did not start this drun; write " +
                  srun_command(reading, facts.nodes->value) +
                  " ..., or for this node alone --nnodes=1");
  }
  facts.node_rank = EngineFact<int>{0, "there being one node"};
  facts.no_master = "of one node's job there is no address for others; give --master-addr";
  read_grants(reading, facts, "SLURM_JOB_GPUS");
  return facts;
}

std::optional<EngineFact<std::string>> slurm_first_host(const EngineContext& context) {
  Facts facts;
  const Reading reading(context, facts);
  const auto list = reading.text("SLURM_JOB_NODELIST");
  if (!list) return std::nullopt;
  const auto hosts = expand_host_list(list->value);
  if (!hosts) return std::nullopt;
  return EngineFact<std::string>{hosts->front(), list->from};
}

std::vector<std::string> slurm_node_addresses(std::string_view record) {
  constexpr std::size_t kMostBytes = 255;
  constexpr std::string_view kCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-_";
  std::vector<std::string> addresses;
  for (const std::string_view name : {" NodeAddr=", " NodeHostName="}) {
    const std::size_t at = record.find(name);
    if (at == record.npos) continue;
    const std::string_view rest = record.substr(at + name.size());
    const std::string_view value = rest.substr(0, rest.find_first_of(" \t\r\n"));
    const bool is_fit = !value.empty() && value.size() <= kMostBytes && value != "(null)" &&
                        value.find_first_not_of(kCharacters) == value.npos && value.front() != '-';
    if (is_fit) addresses.emplace_back(value);
  }
  return addresses;
}

}  // namespace drun::engines
