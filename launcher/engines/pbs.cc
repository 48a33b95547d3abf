#include "launcher/engines/detect.h"

#include "launcher/engines/engine_facts.h"
#include "launcher/engines/host_list.h"

namespace drun::engines {
namespace {

// The job script is TM's first task, on the first host.
bool is_script(const Reading& reading) {
  const auto task = reading.text("PBS_TASKNUM");
  const auto node = reading.text("PBS_NODENUM");
  return (!task || task->value == "1") && (!node || node->value == "0");
}

}  // namespace

std::optional<Facts> pbs(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto job = reading.text("PBS_JOBID");
  if (!job) return std::nullopt;
  facts.engine = "PBS, job " + job->value;
  name_job(facts, "pbs-", *job);
  facts.node_rank = reading.number("PBS_NODENUM", 0);
  if (!reading.is_set("PBS_NODEFILE")) reading.miss("PBS_NODEFILE");
  const auto hosts = slots_from_file(reading, context.file_text, "PBS_NODEFILE");
  if (!hosts) {
    if (facts.wrong.empty()) facts.no_master = "PBS_NODEFILE is not set; give --master-addr";
    return facts;
  }
  if (hosts->hosts.size() == 1 && !facts.node_rank)
    facts.node_rank = EngineFact<int>{0, "there being one node"};
  if (hosts->hosts.size() > 1 && is_script(reading)) {
    reading.blame("job " + job->value + " has " + std::to_string(hosts->hosts.size()) +
                  " nodes, but this drun is in its script, on the first alone; start one on each, "
                  "by mpirun or pbsdsh, or for this node alone give --nnodes=1");
  }
  if (!facts.node_rank) reading.miss("PBS_NODENUM");
  take_hosts(reading, *hosts, facts);
  return facts;
}

std::optional<EngineFact<std::string>> pbs_first_host(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto hosts = slots_from_file(reading, context.file_text, "PBS_NODEFILE");
  if (!hosts) return std::nullopt;
  return EngineFact<std::string>{hosts->hosts.front().host, hosts->from};
}

}  // namespace drun::engines
