// core. Facts from PBS. PBS_NODEFILE lists the hosts, and PBS_NODENUM is this host's position in
// it. Only TM (pbsdsh) and MPI launchers start processes beyond the first host.
//
// Based on qsub(1B) and pbs_resources(7B) of OpenPBS; not tested with a server.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent outside a PBS job.
std::optional<Facts> pbs(const EngineContext& context);

// The first host of the job, for launchers inside it that report no addresses.
std::optional<EngineFact<std::string>> pbs_first_host(const EngineContext& context);

}  // namespace drun::engines
