// edge. A random number that identifies one start of an agent.
#pragma once

#include <cstdint>
#include <random>

namespace drun::rendezvous {

inline std::uint64_t random_instance() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

}  // namespace drun::rendezvous
