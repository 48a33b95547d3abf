#include "launcher/engines/detect.h"

#include <algorithm>

#include "launcher/base/text.h"
#include "launcher/engines/engine_facts.h"

namespace drun::engines {
namespace {

// The domain after "HOSTNAME." in /etc/hosts, from a line such as
// "10.1.2.3  train-1.train.default.svc.cluster.local  train-1".
std::optional<std::string> domain_of(std::string_view hosts, const std::string& hostname) {
  for (std::string_view line : lines_of(hosts)) {
    line = line.substr(0, line.find('#'));
    next_word(line);
    for (auto name = next_word(line); !name.empty(); name = next_word(line)) {
      if (name.size() > hostname.size() + 1 && name.starts_with(hostname + "."))
        return std::string(name.substr(hostname.size() + 1));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Facts> kubernetes(const EngineContext& context) {
  Facts facts;
  Reading reading(context, facts);
  const auto index = reading.text("JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  facts.engine = "Kubernetes, Indexed Job";
  facts.node_rank = reading.number(index->from, 0);
  reading.miss(
      "the number of pods (no variable has it: give --nnodes or set PET_NNODES to the job's "
      "completions, or --nnodes=1 when each pod is a job by itself)");
  facts.no_master = "node 0's address is missing; give --master-addr or set PET_MASTER_ADDR";
  const std::string suffix = "-" + index->value;
  const std::string host(context.hostname.substr(0, context.hostname.find('.')));
  if (!host.ends_with(suffix) || host.size() == suffix.size()) {
    facts.no_master += " (the host name " + context.hostname + " does not end in " + suffix + ")";
    return facts;
  }
  const std::string job = host.substr(0, host.size() - suffix.size());
  if (const auto id = run_id_from("", job))
    facts.run_id = EngineFact<std::string>{*id, "the host name"};
  const auto domain = domain_of(context.file_text("/etc/hosts").value_or(""), host);
  if (!domain) {
    facts.no_master +=
        " (pods have no names for each other: the job's pod template needs a "
        "subdomain, and a headless service of that name)";
    return facts;
  }
  facts.no_master.clear();
  facts.master_addr =
      EngineFact<std::string>{job + "-0." + *domain, "/etc/hosts and the host name"};
  return facts;
}

}  // namespace drun::engines
