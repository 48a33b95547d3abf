// core. What visitor and host say to each other on a connection of their own, again and again:
//
//     visitor   token:16 bytes, size:u32, so many bytes
//     host      time:u64 (its wall clock, nanoseconds since 1970), the same bytes
//
// Shape:   little-endian. Who does not know the job's token gets no answer.
// Limits:  kMostPayloadBytes.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace drun::probe {

constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kAskBytes = kTokenBytes + 4;
constexpr std::size_t kAnswerBytes = 8;
constexpr std::uint32_t kMostPayloadBytes = 256 << 10;

}  // namespace drun::probe
