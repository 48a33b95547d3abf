// edge. Reads the machine's topology with hwloc. No other file includes hwloc. Takes milliseconds,
// so it is used only if workers are placed.
//
// Errors: System if hwloc cannot read the machine; Usage for an invalid synthetic description.
#pragma once

#include <string>

#include "launcher/facts/topology.h"
#include "rendezvous/base/result.h"

namespace drun {

// Makes hwloc's functions available: hwloc_late.cc loads the library; hwloc_linked.cc, for a linked
// hwloc, does nothing. Call it before any function of hwloc, from one thread at a time. Errors:
// System, if the library cannot be loaded.
Result<void> load_hwloc();

// The CPUs and memory nodes of this machine and which of them this process may use. Without GPUs.
Result<Topology> read_topology();

// A synthetic machine, for example hwloc's "pack:2 numa:1 l3:1 core:8 pu:2". All of it is allowed.
Result<Topology> read_synthetic_topology(const std::string& description);

}  // namespace drun
