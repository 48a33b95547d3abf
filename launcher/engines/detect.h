// core. Detects the engine that started this agent: the first one whose variables are set.
//
//          Slurm step > Open MPI > PMI (Hydra) > PMIx > LSF > PBS > Kubernetes index
//          > Slurm job without a step
//
// Exception: an MPI launcher that was started inside a Slurm step, or that uses a step to start its
// daemons, takes precedence over the step. An engine with incomplete variables is still selected,
// and its facts list what is missing; falling back to another engine would be a guess.
#pragma once

#include <optional>
#include <string_view>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

std::optional<Facts> detect(const EngineContext& context);

// Whether the variable identifies one process to its engine. Such a variable is valid for the agent
// but not for its workers, which would all take the same rank from it, so it is removed from the
// workers' environment. Variables about the node or the job (SLURM_JOB_ID, SLURM_NODEID,
// JOB_COMPLETION_INDEX, PBS_NODEFILE ...) stay.
bool is_foreign(std::string_view variable);

}  // namespace drun::engines
