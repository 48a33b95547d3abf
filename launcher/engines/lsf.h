// core. Facts from LSF. LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS or LSB_HOSTS list the hosts. Under
// blaunch, LSF_PM_TASKID is this process's position in the list, starting from 1.
//
// Based on LSF's environment variable reference and PRRTE's ess/lsf; not tested with a server.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent outside an LSF job.
std::optional<Facts> lsf(const EngineContext& context);

// The first host of the job, for launchers inside it that report no addresses.
std::optional<EngineFact<std::string>> lsf_first_host(const EngineContext& context);

}  // namespace drun::engines
