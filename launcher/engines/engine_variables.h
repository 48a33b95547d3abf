// core. The variables by which engines tell a process which one it is. They are true of the agent
// and false for its workers, of which each would believe to be the same rank: they are removed from
// the workers' environment. What is true of the node or the job (SLURM_JOB_ID, SLURM_NODEID,
// JOB_COMPLETION_INDEX, PBS_NODEFILE ...) stays.
// Thread:  any.
#pragma once

#include <string_view>

namespace drun::engines {

bool is_foreign(std::string_view variable);

}  // namespace drun::engines
