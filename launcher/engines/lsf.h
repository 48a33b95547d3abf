// core. What LSF says: LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS or LSB_HOSTS name the hosts, and under
// blaunch LSF_PM_TASKID is this one's place among them, counted from 1.
//
// Source:  LSF's environment variable reference, PRRTE's ess/lsf; not tried with a server.
// Thread:  any.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent: not in a job of LSF.
std::optional<Facts> lsf(const Surroundings& around);

// The first host of the job, for launchers inside of it that tell no addresses.
std::optional<Told<std::string>> lsf_first_host(const Surroundings& around);

}  // namespace drun::engines
