#include "launcher/engines/detect.h"

#include "launcher/engines/kubernetes.h"
#include "launcher/engines/lsf.h"
#include "launcher/engines/mpi.h"
#include "launcher/engines/pbs.h"
#include "launcher/engines/slurm.h"

namespace drun::engines {

std::optional<Facts> detect(const EngineContext& context) {
  if (!is_started_within_step(context)) {
    if (auto facts = slurm_step(context)) return facts;
  }
  for (const auto rule : {open_mpi, hydra, pmix, lsf, pbs, kubernetes, slurm_allocation}) {
    if (auto facts = rule(context)) return facts;
  }
  return std::nullopt;
}

}  // namespace drun::engines
