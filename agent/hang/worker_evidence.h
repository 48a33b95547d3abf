// core. The findings about this node's workers, as evidence that merges with other nodes'.
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "agent/hang/heartbeat_files.h"
#include "agent/nccl_ras/ras_position.h"
#include "agent/stacks/stacks.h"
#include "rendezvous/job/evidence.h"

namespace drun::agent {

struct WorkerFacts {
  Pulse pulse{};
  bool is_quiet = false;  // no sign of life for the hang timeout
  ras::RankPosition nccl{};
};

// `facts` by local rank, as found.workers. `notes`: what else is known. `base_rank`: that of local
// rank 0.
Evidence evidence_of(const FoundStacks& found, int base_rank, const std::vector<WorkerFacts>& facts,
                     const std::vector<std::string>& notes = {});

}  // namespace drun::agent
