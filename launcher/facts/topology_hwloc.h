// edge. The machine's topology by hwloc: the only place that sees it. Takes milliseconds, so it is
// asked for only when something is to be placed.
//
// Thread: main's.
// Errors: System, when hwloc cannot read the machine; Usage for a synthetic text it does not take.
#pragma once

#include <string>

#include "launcher/facts/topology.h"

namespace drun {

// CPUs and memory nodes of this machine (no GPUs), with what this process may use of them.
Result<Topology> read_topology();

// A machine that is not there, all of it allowed: hwloc's "pack:2 numa:1 l3:1 core:8 pu:2".
Result<Topology> read_synthetic_topology(const std::string& description);

}  // namespace drun
