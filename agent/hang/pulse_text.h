// core. What a worker has written into its heartbeat file (rendezvous/pulse_page.h), read with the
// care that another process's bytes need.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace drun::agent {

struct Pulse {
  std::uint64_t beats = 0;    // 0: it has written nothing
  std::uint64_t arrived = 0;  // operations of the whole world it has begun; 0: not known
  bool is_inside = false;     // in an operation
  std::string doing{};        // "in all_reduce #812 (4096 bytes)"; empty: not known
  bool operator==(const Pulse&) const = default;
};

// `page`: the file's bytes; anything else than a page of this layout is a Pulse that knows nothing.
// Of several operations that have not ended the oldest is what the worker is in.
Pulse read_pulse(std::string_view page);

}  // namespace drun::agent
