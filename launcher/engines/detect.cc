#include "launcher/engines/detect.h"

#include "launcher/engines/kubernetes.h"
#include "launcher/engines/lsf.h"
#include "launcher/engines/mpi.h"
#include "launcher/engines/pbs.h"
#include "launcher/engines/slurm.h"

namespace drun::engines {

std::optional<Facts> detect(const EngineContext& around) {
  if (!is_started_within_step(around)) {
    if (auto facts = slurm_step(around)) return facts;
  }
  for (const auto rule : {open_mpi, hydra, pmix, lsf, pbs, kubernetes, slurm_allocation}) {
    if (auto facts = rule(around)) return facts;
  }
  return std::nullopt;
}

}  // namespace drun::engines
