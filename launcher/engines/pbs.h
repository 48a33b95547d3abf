// core. What PBS says: PBS_NODEFILE names the hosts, PBS_NODENUM is this one's place among them.
// Nobody but TM (pbsdsh) and MPI launchers start anything beyond the first host.
//
// Source:  qsub(1B), pbs_resources(7B) of OpenPBS; by the documents, not tried with a server.
// Thread:  any.
#pragma once

#include <optional>

#include "launcher/engines/engine_facts.h"

namespace drun::engines {

// Absent: not in a job of PBS.
std::optional<Facts> pbs(const Surroundings& around);

// The first host of the job, for launchers inside of it that tell no addresses.
std::optional<Told<std::string>> pbs_first_host(const Surroundings& around);

}  // namespace drun::engines
