// core. Facts from Slurm's variables, for a task of a step (started by srun) and for a process of
// an allocation outside any step (a batch script, salloc's shell).
//
// A step uses its own node list, not the allocation's. The node rank is SLURM_NODEID and must agree
// with the list. SLURM_LAUNCH_NODE_IPADDR is the host of srun and is not used. More than one task
// per node is an error. See srun(1), src/common/env.c, and docs/guide/engines.md for the pitfalls.
// Tested with Slurm 22.05.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent outside a step, or outside an allocation.
std::optional<Facts> slurm_step(const EngineContext& context);
std::optional<Facts> slurm_allocation(const EngineContext& context);

// The first node of the allocation, for launchers inside it that report no addresses.
std::optional<EngineFact<std::string>> slurm_first_host(const EngineContext& context);

// The node's address and host name from the output of `scontrol --oneliner show node NAME`. Each is
// an address or a name; invalid ones are left out.
std::vector<std::string> slurm_node_addresses(std::string_view record);

}  // namespace drun::engines
