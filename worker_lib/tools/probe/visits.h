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

// core. The protocol of visitor and host on their connection, repeated:
//
//     visitor   token:16 bytes, size:u32, so many bytes
//     host      time:u64 (its wall clock, nanoseconds since 1970), the same bytes
//
// Shape:   little-endian. A visitor without the job's token gets no answer.
// Limits:  kMostPayloadBytes.   Thread: any.

namespace drun::probe {

constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kAskBytes = kTokenBytes + 4;
constexpr std::size_t kAnswerBytes = 8;
constexpr std::uint32_t kMostPayloadBytes = 256 << 10;

}  // namespace drun::probe

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
