// edge. Visits other nodes' probes, up to 256 at a time: whether they are reached, how long a
// message takes there and back, what their clocks say, whether large messages arrive.
// Thread: any.   Blocks: until all are done, kVisitAtMost at most for each 256.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "worker_lib/probe/facts.h"

namespace drun::probe {

constexpr std::chrono::seconds kVisitAtMost{4};

struct Destination {
  int node = 0;
  std::string address;  // numeric
  std::uint16_t port = 0;
};

// One for each, in the same order.
std::vector<Visit> visit_all(const std::vector<Destination>& destinations,
                             const std::string& token);

}  // namespace drun::probe
