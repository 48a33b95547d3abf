// edge. Visits between the probes of two nodes: whether they reach each other, how long a message
// takes there and back, what their clocks say, whether large messages arrive.
//
// Protocol, repeated on one connection:
//
//     visitor   token:16 bytes, size:u32, `size` bytes
//     host      time:u64 (its wall clock, nanoseconds since 1970), the same bytes
//
// Integers are little-endian. `size` is at most 256 KiB. A visitor without the job's token gets no
// answer.
//
// Thread:  any.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// A new one for a job.
std::string new_token();

constexpr std::chrono::seconds kVisitAtMost{4};

struct Destination {
  int node = 0;
  std::string address;  // numeric
  std::uint16_t port = 0;
};

// One for each, in the same order, up to 256 at a time. Blocks until all are done, kVisitAtMost at
// most for each 256.
std::vector<Visit> visit_all(const std::vector<Destination>& destinations,
                             const std::string& token);

// Answers the visitors of this node, on a separate thread: 256 at a time, 10 s each; others are
// closed. Destruction closes all connections and ends the thread.
class Host {
 public:
  // Listens at a free port on all addresses. Errors: System.
  static Result<std::unique_ptr<Host>> open(std::string token);
  virtual ~Host() = default;
  virtual std::uint16_t port() const = 0;
};

}  // namespace drun::probe
