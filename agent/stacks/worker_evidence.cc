#include "agent/stacks/worker_evidence.h"

namespace drun::agent {

Evidence evidence_of(const FoundStacks& found, int base_rank,
                     const std::vector<WorkerFacts>& facts) {
  Evidence evidence;
  for (std::size_t i = 0; i < found.workers.size(); ++i) {
    const std::vector<ProcessStacks>& processes = found.workers[i];
    const WorkerFacts known = i < facts.size() ? facts[i] : WorkerFacts();
    const int rank = base_rank + static_cast<int>(i);
    StackGroup group{.ranks = {{rank, rank}}};
    if (processes.empty()) {
      group.doing = "has ended";
      group.source = "agent";
    } else {
      group.doing = known.pulse.doing;
      group.arrived = known.pulse.arrived;
      group.is_inside = known.pulse.is_inside;
      group.is_quiet = known.is_quiet;
      group.source = sources_of(processes);
      group.lines = stack_lines(processes);
    }
    merge(evidence, {.groups = {std::move(group)}});
  }
  merge(evidence, {.notes = found.notes});
  shrink(evidence);
  return evidence;
}

}  // namespace drun::agent
