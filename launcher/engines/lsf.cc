#include "launcher/engines/detect.h"

#include "launcher/engines/engine_facts.h"
#include "launcher/engines/host_list.h"

namespace drun::engines {
namespace {

// LSB_HOSTS is not set in large jobs; the file is the most complete source.
std::optional<SlotList> hosts_of(Reading& reading, const EngineContext& context) {
  if (reading.is_set("LSB_DJOB_HOSTFILE"))
    return slots_from_file(reading, context.file_text, "LSB_DJOB_HOSTFILE");
  if (const auto pairs = reading.text("LSB_MCPU_HOSTS")) {
    auto list = slots_from_pairs(pairs->value, pairs->from);
    if (!list) reading.blame(shown(*pairs) + " is not HOST SLOTS HOST SLOTS ...; unset it");
    return list;
  }
  if (const auto words = reading.text("LSB_HOSTS")) {
    auto list = slots_from_words(words->value, words->from);
    if (!list) reading.blame(shown(*words) + " names no hosts; unset it");
    return list;
  }
  return std::nullopt;
}

// All elements of a job array have the same LSB_JOBID. Without an array the index is 0 or not set.
std::optional<EngineFact<std::string>> job_of(const Reading& reading) {
  auto job = reading.text("LSB_JOBID");
  const auto index = reading.text("LSB_JOBINDEX");
  if (!job || !index || index->value == "0") return job;
  return EngineFact<std::string>{job->value + "[" + index->value + "]",
                                 job->from + " and " + index->from};
}

}  // namespace

std::optional<Facts> lsf(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto job = job_of(reading);
  if (!job) return std::nullopt;
  facts.engine = "LSF, job " + job->value;
  name_job(facts, "lsf-", *job);
  const std::optional<EngineFact<int>> task = reading.number("LSF_PM_TASKID", 1);
  if (task) facts.node_rank = EngineFact<int>{task->value - 1, task->from};
  const std::optional<SlotList> hosts = hosts_of(reading, context);
  if (!hosts) {
    facts.no_master = "LSF's list of hosts is missing; give --master-addr";
    reading.miss("LSB_DJOB_HOSTFILE or LSB_MCPU_HOSTS");
    return facts;
  }
  const std::size_t count = hosts->hosts.size();
  if (count == 1) facts.node_rank = EngineFact<int>{0, "there being one node"};
  if (!facts.node_rank && facts.wrong.empty()) {
    reading.blame("job " + job->value + " has " + std::to_string(count) +
                  " nodes, but LSF_PM_TASKID, by which blaunch tells which one this is, is not "
                  "set; start one drun on each, by blaunch or mpirun, or for this node alone give "
                  "--nnodes=1");
  }
  take_hosts(reading, *hosts, facts);
  return facts;
}

std::optional<EngineFact<std::string>> lsf_first_host(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto hosts = reading.is_set("LSB_JOBID") ? hosts_of(reading, context) : std::nullopt;
  if (!hosts) return std::nullopt;
  return EngineFact<std::string>{hosts->hosts.front().host, hosts->from};
}

}  // namespace drun::engines
