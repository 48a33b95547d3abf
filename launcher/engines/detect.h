// core. Which engine started this agent: the first of the rules whose variables are there.
//
//          Slurm step > Open MPI > PMI (Hydra) > PMIx > LSF > PBS > Kubernetes index
//          > Slurm job without a step
//
// Shape:   but an MPI launcher that was started within a Slurm step, or that uses one to start its
//          daemons, is nearer than the step. A rule whose variables are not whole still wins, and
//          its facts say what is missing: another one would be a guess.
// Thread:  any.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

std::optional<Facts> detect(const Surroundings& around);

}  // namespace drun::engines
