// core. Combines the findings about this node's workers into evidence that can be merged with that
// of other nodes.
#pragma once

#include <string>
#include <vector>

#include "agent/hang/heartbeat_files.h"
#include "agent/nccl_ras/ras_position.h"
#include "agent/stacks/evidence.h"
#include "agent/stacks/stacks.h"

namespace drun::agent {

struct WorkerFacts {
  Pulse pulse{};
  bool is_quiet = false;  // no sign of activity for the hang timeout
  ras::RankPosition nccl{};
  std::vector<std::string> calls{};  // of PyTorch's Flight Recorder (flight_lines)
};

// `facts`: by local rank, like found.workers. `notes`: additional lines. `base_rank`: the rank of
// local rank 0.
Evidence evidence_of(const FoundStacks& found, int base_rank, const std::vector<WorkerFacts>& facts,
                     const std::vector<std::string>& notes = {});

}  // namespace drun::agent
