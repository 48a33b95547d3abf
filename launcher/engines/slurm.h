// core. What Slurm's variables say: of a step, whose tasks srun started, and of an allocation, in
// which this process is but no task of a step (a batch script, salloc's shell).
//
// Shape:   the step's own list counts, not the allocation's; the node rank is SLURM_NODEID, and the
//          list must agree with it. SLURM_LAUNCH_NODE_IPADDR is where srun ran: not used.
// Errors:  in the facts: one task a node is what is asked for.
// Source:  srun(1), src/common/env.c; tried with Slurm 22.05. docs/guide/engines.md has the traps.
// Thread:  any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent: not in a step, or not in an allocation.
std::optional<Facts> slurm_step(const Surroundings& around);
std::optional<Facts> slurm_allocation(const Surroundings& around);

// The first node of the allocation, for launchers inside of it that tell no addresses.
std::optional<Told<std::string>> slurm_first_host(const Surroundings& around);

// From what `scontrol --oneliner show node NAME` prints: its address and its host name, each an
// address or a name. What cannot be one is left out.
std::vector<std::string> slurm_node_addresses(std::string_view record);

}  // namespace drun::engines
