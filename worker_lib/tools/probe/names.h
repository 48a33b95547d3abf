// edge. Asks the name service for other nodes' names and addresses.
//
// Thread:  runs in a separate thread, because getaddrinfo cannot be interrupted.
// Owner:   the probe. A thread that hangs outlives this object: end the process without waiting for
//          it (is_hanging).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

struct Named {
  int node = 0;
  std::string host;
  std::string address;  // numeric
};

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
