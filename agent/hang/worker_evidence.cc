#include "agent/hang/worker_evidence.h"

#include <string_view>

#include "agent/diagnosis/hang_positions.h"

namespace drun::agent {
namespace {

// "at all_reduce 811 in a communicator of 8, the others at 812 (NCCL)". For a rank that is ahead,
// NCCL's words would describe another communicator, where it is behind.
std::string doing_of(const WorkerFacts& known) {
  constexpr std::string_view kIs = "is ";
  const std::string& words = known.nccl.words;
  if (!known.pulse.doing.empty()) return known.pulse.doing;
  if (known.nccl.stand == NcclPosition::Ahead) return std::string(kAheadInNccl);
  if (known.nccl.stand != NcclPosition::Behind || words.empty()) return "";
  return words.substr(words.starts_with(kIs) ? kIs.size() : 0) + " (NCCL)";
}

}  // namespace

Evidence evidence_of(const FoundStacks& found, int base_rank, const std::vector<WorkerFacts>& facts,
                     const std::vector<std::string>& notes) {
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
      group.doing = doing_of(known);
      group.arrived = known.pulse.arrived;
      group.is_inside = known.pulse.is_inside;
      group.is_quiet = known.is_quiet;
      group.nccl = known.nccl.stand;
      group.source = sources_of(processes);
      group.lines = known.calls;
      const std::vector<std::string> stacks = stack_lines(processes);
      group.lines.insert(group.lines.end(), stacks.begin(), stacks.end());
    }
    merge(evidence, {.groups = {std::move(group)}});
  }
  merge(evidence, {.notes = notes});
  merge(evidence, {.notes = found.notes});
  shrink(evidence);
  return evidence;
}

}  // namespace drun::agent
