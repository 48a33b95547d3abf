// edge. What this machine is: limits, memory, interface, libraries. Decides nothing.
// Thread: any.   Blocks: name resolution of the master's name; loading NCCL.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/base/result.h"
#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// The address from which this machine reaches `master`, its interface and MTU; of the interface
// `wanted` unless that is empty. Errors: as local_address.h.
Result<void> look_at_network(NodeFacts& facts, const std::string& master, std::uint16_t port,
                             const std::string& wanted);

// The rest; what cannot be found out stays as it is.
void look_at_machine(NodeFacts& facts);

}  // namespace drun::probe
