// core. What was found of this node's workers, as evidence that can be merged with other nodes'.
// Thread: any.
#pragma once

#include <vector>

#include "agent/hang/pulse_text.h"
#include "agent/stacks/stacks.h"
#include "rendezvous/evidence.h"

namespace drun::agent {

struct WorkerFacts {
  Pulse pulse{};
  bool is_quiet = false;  // no sign of life for the hang timeout
};

// `facts` by local rank, as found.workers. `base_rank`: that of local rank 0.
Evidence evidence_of(const FoundStacks& found, int base_rank,
                     const std::vector<WorkerFacts>& facts);

}  // namespace drun::agent
