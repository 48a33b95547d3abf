// core. Slots: 64-bit numbers by which a mesh identifies messages between two ranks. The top byte
// is the kind of traffic, the rest identifies the message.
#pragma once

#include <cstdint>

#include "worker_lib/base/signature.h"

namespace drun::worker {

enum class Traffic : std::uint8_t {
  Agreement = 0xD1,
  Collective = 0xD2,
  Header = 0xD3,
  Payload = 0xD4
};

inline std::uint64_t make_slot(Traffic traffic, std::uint64_t which) {
  return static_cast<std::uint64_t>(traffic) << 56 | (which & ~(std::uint64_t{0xFF} << 56));
}
inline std::uint64_t header_slot(int tag) {
  return make_slot(Traffic::Header, static_cast<std::uint32_t>(tag));
}
inline std::uint64_t payload_slot(std::uint64_t number) {
  return make_slot(Traffic::Payload, number);
}

// A hash of which every bit depends on all bits of both arguments. Source: SplitMix64 by Steele,
// Lea and Flood.
inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  std::uint64_t x = hash * 0x9e3779b97f4a7c15 + value + 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}
inline std::uint64_t mix(std::uint64_t hash, const Signature& signature) {
  return mix(mix(hash, signature.what), signature.count);
}

}  // namespace drun::worker
