// core. Variables that identify one process to its engine. They are valid for the agent but not for
// its workers, which would all take the same rank from them, so they are removed from the workers'
// environment. Variables about the node or the job (SLURM_JOB_ID, SLURM_NODEID,
// JOB_COMPLETION_INDEX, PBS_NODEFILE ...) stay.
#pragma once

#include <string_view>

namespace drun::engines {

bool is_foreign(std::string_view variable);

}  // namespace drun::engines
