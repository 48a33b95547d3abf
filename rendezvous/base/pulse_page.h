// core. The page that a worker and its agent share to detect hangs and slow ranks: the worker
// counts its operations and the time that its calls take, and records the latest operations.
// DRUN_HEARTBEAT_FILE contains its path.
//
// Layout:  a file of kPulseBytes, host byte order: magic, beats, operations begun, the sequence
//          number of the last operation of the whole world, then a ring of entries, then the time
//          in calls (zero if an older worker_lib writes the page). Other changes of the layout
//          need a different magic.
// Writer:  worker_lib/core/pulse.cc, plain stores into the mapped file. Other programs can touch
//          the file instead: a change of its modification time also counts as activity.
// Reader:  agent/hang/heartbeat_files.cc. The data may be torn or invalid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace drun {

constexpr std::size_t kPulseBytes = 4096;
constexpr std::size_t kPulseEntries = 32;
constexpr std::uint64_t kPulseMagic = 0x31736c706e757264;  // "drunpls1" on x86 and ARM
constexpr const char* kHeartbeatVariable = "DRUN_HEARTBEAT_FILE";

// worker_lib's Operations in the order of that enum, then the messages (send, recv). A new
// Operation shifts the messages, so it needs a new version of the page: extend this list,
// kPulseSend, kPulseRecv, and change kPulseMagic.
constexpr std::array<std::string_view, 11> kPulseKinds{
    "barrier", "broadcast",      "all_reduce", "reduce", "gather", "all_gather",
    "scatter", "reduce_scatter", "all_to_all", "send",   "recv"};
constexpr std::uint16_t kPulseSend = 9;
constexpr std::uint16_t kPulseRecv = 10;

struct PulseEntry {
  std::uint64_t number = 0;  // 1 for the first operation of the process; 0: empty, or being written
  std::uint64_t sequence = 0;  // within its group; 0: none
  std::uint64_t bytes = 0;
  std::uint32_t group = 0;  // 0: the whole world
  std::uint16_t kind = 0;   // in kPulseKinds
  std::uint16_t has_ended = 0;
};

struct PulsePage {
  std::uint64_t magic = 0;
  std::uint64_t beats = 0;          // increases with every begin and end
  std::uint64_t begun = 0;          // number of the latest entry
  std::uint64_t world_arrived = 0;  // sequence number of the world's latest operation
  std::array<PulseEntry, kPulseEntries> entries{};
  std::uint64_t waited_ns = 0;  // in calls that have returned, waiting for other ranks or not
  std::uint64_t waiting_since_ns = 0;  // CLOCK_MONOTONIC_COARSE; 0: not in a call
};
static_assert(sizeof(PulseEntry) == 32 && sizeof(PulsePage) <= kPulseBytes);

}  // namespace drun
