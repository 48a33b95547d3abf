// edge. Visits other nodes' probes, up to 256 at a time: whether they are reached, how long a
// message takes there and back, what their clocks say, whether large messages arrive.
// Thread: any.   Blocks: until all are done, kVisitAtMost at most for each 256.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// --- Protocol of visitor and host, repeated on one connection
//
//     visitor   token:16 bytes, size:u32, `size` bytes
//     host      time:u64 (its wall clock, nanoseconds since 1970), the same bytes
//
// Integers are little-endian. `size` is at most kMostPayloadBytes. A visitor without the job's
// token gets no answer.

constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kAskBytes = kTokenBytes + 4;
constexpr std::size_t kAnswerBytes = 8;
constexpr std::uint32_t kMostPayloadBytes = 256 << 10;

// --- Visits

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
