// edge. Collects facts about this machine: limits, memory, interface, libraries.
// Thread: any.   Blocks: resolving the master's name; loading NCCL.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/base/result.h"
#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// Sets the address from which this machine reaches `master`, its interface and MTU; if `wanted` is
// not empty, those of that interface. Errors: as local_address.h.
Result<void> look_at_network(NodeFacts& facts, const std::string& master, std::uint16_t port,
                             const std::string& wanted);

// Sets the other facts. Facts that cannot be determined are unchanged.
void look_at_machine(NodeFacts& facts);

}  // namespace drun::probe
