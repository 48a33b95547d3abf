// core. The findings of a look at the workers of a job: the stack of each rank, with ranks of equal
// stacks in one group. Agents create it, the coordinator merges it, and every node shows it.
//
// Shape:   groups by size, the largest first, so that ranks that differ are at the end. A group's
//          ranks are ascending ranges that neither overlap nor touch.
// Limits:  shrink() keeps what a message may carry; what it drops is counted.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace drun {

struct RankRange {
  int first = 0;
  int last = 0;
  bool operator==(const RankRange&) const = default;
};
using RankRanges = std::vector<RankRange>;

// By NCCL's own count of operations (agent/ras).
enum class NcclPosition : std::uint8_t {
  None,    // level with the others, or not known
  Ahead,   // it waits for others of a communicator
  Behind,  // others wait for it, or it does not answer
};

struct StackGroup {
  RankRanges ranks{};
  std::string doing{};        // "in all_reduce #812"; empty: the program does not tell
  std::uint64_t arrived = 0;  // operations of the whole world it has begun; 0: not known
  bool is_inside = false;     // ... and it is in the last one
  bool is_quiet = false;      // no sign of life for as long as a hang takes (--hang-timeout)
  NcclPosition nccl = NcclPosition::None;
  std::string source{};              // where the stacks come from: "py-spy", "gdb", "/proc" ...
  std::vector<std::string> lines{};  // processes, threads, frames; the innermost frame first
  bool operator==(const StackGroup&) const = default;
};

struct Evidence {
  std::vector<StackGroup> groups{};
  std::vector<std::string> notes{};  // "node 3 (host3): no answer in 10 s"; each once
  std::size_t ranks_left_out = 0;    // that were found, and did not fit
  bool operator==(const Evidence&) const = default;
};

// The most that one message carries.
constexpr std::size_t kMostStackGroups = 48;
constexpr std::size_t kMostStackLines = 160;  // of a group
constexpr std::size_t kStackLineBytes = 200;
constexpr std::size_t kMostRankRanges = 1024;
constexpr std::size_t kMostEvidenceNotes = 48;
constexpr std::size_t kEvidenceBytes = std::size_t{96} << 10;  // all lines and notes together

void add_rank(RankRanges& ranges, int rank);
// Sorts `ranges` and joins those that overlap or touch.
void normalise(RankRanges& ranges);
std::size_t count_of(const RankRanges& ranges);
bool contains(const RankRanges& ranges, int rank);
// Both in linear time, of normalised ranges.
RankRanges intersection(const RankRanges& one, const RankRanges& other);
RankRanges difference(const RankRanges& from, const RankRanges& taken);
// "rank 7", "ranks 0-6, 8-63"; of more than 64 ranges the first, and the number of other ranks.
std::string ranks_text(const RankRanges& ranges);

// Ranks that stand where a group of `into` stands join that group.
void merge(Evidence& into, const Evidence& found);
// merge() of many in two steps: gather() each, in O(found) and leaving groups and ranges in any
// order; then settle() once.
void gather(Evidence& into, const Evidence& found);
void settle(Evidence& evidence);

// Reduces it to the limits above, in order; does not change what fits. Keeps the largest group,
// then the smallest ones, since ranks that differ matter most.
void shrink(Evidence& evidence);

// For people: "ranks 0-6, 8-63: in all_reduce #812 (gdb)", then lines, groups one below the other,
// then notes. At most `most_lines` lines; what is beyond is counted.
std::vector<std::string> evidence_lines(const Evidence& evidence, std::size_t most_lines);

}  // namespace drun
