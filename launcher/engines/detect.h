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

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

std::optional<Facts> detect(const EngineContext& context);

}  // namespace drun::engines
