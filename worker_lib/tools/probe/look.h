// edge. Collects facts about this machine: limits, memory, interface, libraries, and what its name
// service knows of other nodes.
// Thread: any.   Blocks: resolving the master's name; loading NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// Sets the address from which this machine reaches `master`, its interface and MTU; if `wanted` is
// not empty, those of that interface. Errors: as local_address.h.
Result<void> look_at_network(NodeFacts& facts, const std::string& master, std::uint16_t port,
                             const std::string& wanted);

// Sets the other facts. Facts that cannot be determined are unchanged.
void look_at_machine(NodeFacts& facts);

// --- Names

struct Named {
  int node = 0;
  std::string host;
  std::string address;  // numeric
};

// Asks the name service on a separate thread, because getaddrinfo cannot be interrupted. A thread
// that hangs outlives this object: end the process without waiting for it (is_hanging).
class Names {
 public:
  explicit Names(std::vector<Named> nodes);

  // Returns the results until the deadline, one per node; does not wait for the others.
  std::vector<NameLookup> wait_until(std::chrono::steady_clock::time_point deadline);
  bool is_hanging() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace drun::probe
