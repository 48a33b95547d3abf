// core. What NCCL's RAS service knows of a job: its communicators, how far each of their ranks has
// come, and who does not answer.
//
// Ranks:   a communicator's own, 0..size-1; a process is known by its host's address and its pid.
// Counts:  operations that a rank has launched, of each kind. The text dialect tells them only
//          where ranks differ, and of the many only how many they are.
// Owner:   values; copy freely.   Thread: any.
// Source:  NVIDIA/nccl, src/ras/client_support.cc of 2.24.3 and 2.28.9, and its user guide's "RAS".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace drun::agent::ras {

// NCCL has five kinds.
constexpr std::size_t kMostKinds = 8;
// Of all communicators together; an answer with more is refused.
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
  std::array<std::optional<std::uint64_t>, kMostKinds> counts{};  // by kind; absent: not told
  bool operator==(const Rank&) const = default;
};

// Ranks that are not named one by one.
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
  bool is_dead = false;  // for good; else it only has not answered this time
  bool operator==(const Lost&) const = default;
};

struct Report {
  std::vector<std::string> kinds{};  // "AllReduce"; at most kMostKinds
  std::vector<Communicator> communicators{};
  std::vector<Lost> lost{};
  bool operator==(const Report&) const = default;
};

// The number of that kind in report.kinds, where it is added if there is room.
std::optional<std::size_t> kind_of(Report& report, const std::string& name);

// Once in the list, of at most kMostLost; that it is dead wins.
void add_lost(Report& report, const Lost& lost);

}  // namespace drun::agent::ras
