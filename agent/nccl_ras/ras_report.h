// core. A report of NCCL's RAS service: a job's communicators, the number of operations that each
// of their ranks has launched, and the processes that do not respond.
//
// Ranks:   within a communicator, 0 to size-1. A process is identified by host address and pid.
// Counts:  operations that a rank has launched, per kind. The text format has them only if ranks
//          differ, and for large groups only the number of ranks with each count.
// Source:  NVIDIA/nccl, src/ras/client_support.cc of 2.24.3 and 2.28.9, and its user guide's "RAS".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drun::agent::ras {

// NCCL has five kinds of operations.
constexpr std::size_t kMostKinds = 8;
// In all communicators together; an answer with more is rejected.
constexpr std::size_t kMostRanks = std::size_t{1} << 17;
constexpr std::size_t kMostLost = 1024;

struct Process {
  int pid = 0;         // 0: not known
  std::string host{};  // a numeric address; empty: not known
  bool operator==(const Process&) const = default;
};

struct Rank {
  int rank = 0;
  Process process{};
  std::array<std::optional<std::uint64_t>, kMostKinds> counts{};  // by kind; absent: not reported
  bool operator==(const Rank&) const = default;
};

// Ranks that are only counted, not listed.
struct RankGroup {
  std::size_t kind = 0;
  std::uint64_t count = 0;
  int ranks = 0;
  bool operator==(const RankGroup&) const = default;
};

struct Communicator {
  std::string hash{};
  int size = 0;  // 0: not known
  std::vector<Rank> ranks{};
  std::vector<RankGroup> crowds{};
  bool operator==(const Communicator&) const = default;
};

struct Lost {
  Process process{};
  bool is_dead = false;  // permanently; false: it did not respond this time
  bool operator==(const Lost&) const = default;
};

struct Report {
  std::vector<std::string> kinds{};  // "AllReduce"; at most kMostKinds
  std::vector<Communicator> communicators{};
  std::vector<Lost> lost{};
  bool operator==(const Report&) const = default;
};

// The index of that kind in report.kinds. Adds it if there is room.
std::optional<std::size_t> kind_of(Report& report, const std::string& name);

// Adds a process once, up to kMostLost processes. If reports differ, is_dead is set.
void add_lost(Report& report, const Lost& lost);

}  // namespace drun::agent::ras
