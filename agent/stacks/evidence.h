// core. The result of a query of a job's workers: the stack of each rank, with ranks of equal
// stacks in one group. Each node creates that of its workers, and it is shown merged, on any node.
//
// Shape:   groups by size, the largest first, so that ranks that differ are at the end. A group's
//          ranks are ascending ranges that neither overlap nor touch.
// Limits:  shrink() keeps what a message may carry; what it drops is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/rank_ranges.h"

namespace drun::agent {

// A rank's position by NCCL's own count of operations (agent/nccl_ras).
enum class NcclPosition : std::uint8_t {
  None,    // level with the others, or unknown
  Ahead,   // it waits for others of a communicator
  Behind,  // others wait for it, or it does not respond
};

struct StackGroup {
  RankRanges ranks{};
  std::string doing{};  // "in all_reduce #812"; empty: unknown
  // The number of operations of the whole world that it has begun; 0: unknown.
  std::uint64_t arrived = 0;
  bool is_inside = false;  // it has not left the last of them
  bool is_quiet = false;   // no activity for --hang-timeout
  NcclPosition nccl = NcclPosition::None;
  std::string source{};              // where the stacks come from: "py-spy", "gdb", "/proc" ...
  std::vector<std::string> lines{};  // processes, threads, frames; the innermost frame first
  bool operator==(const StackGroup&) const = default;
};

struct Evidence {
  std::vector<StackGroup> groups{};
  std::vector<std::string> notes{};  // "node 3 (host3): no answer in 10 s"; each once
  std::size_t ranks_left_out = 0;    // found, but beyond the limits
  bool operator==(const Evidence&) const = default;
};

// The most that one message carries.
constexpr std::size_t kMostStackGroups = 48;
constexpr std::size_t kMostStackLines = 160;  // of a group
constexpr std::size_t kStackLineBytes = 200;
constexpr std::size_t kMostRankRanges = 1024;
constexpr std::size_t kMostEvidenceNotes = 48;
constexpr std::size_t kEvidenceBytes = std::size_t{96} << 10;  // all lines and notes together

// Does nothing if the text is empty or a note already.
void add_note(std::vector<std::string>& notes, const std::string& text);

// Adds `found`; ranks in the same position as a group of `into` join that group.
void merge(Evidence& into, const Evidence& found);
// merge() of many in two steps: gather() each, in O(found) and leaving groups and ranges in any
// order; then settle() once.
void gather(Evidence& into, const Evidence& found);
void settle(Evidence& evidence);

// Reduces it to the limits above, in order; does not change what fits. Keeps the largest group,
// then the smallest ones, since ranks that differ matter most.
void shrink(Evidence& evidence);

// As bytes of a message, at most 128 KiB, after shrink(). Absent: malformed, or beyond the limits.
std::string encode_evidence(Evidence evidence);
std::optional<Evidence> decode_evidence(std::string_view bytes);

// Text to be shown: "ranks 0-6, 8-63: in all_reduce #812 (gdb)", then lines, groups one below the
// other, then notes. At most `most_lines` lines; further ones are counted.
std::vector<std::string> evidence_lines(const Evidence& evidence, std::size_t most_lines);

// For `drun stacks --json`: one object, schema "drun.stacks/1" (docs/guide/hangs.md), with a
// newline at the end. Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string evidence_json(const Evidence& evidence, const std::string& run_id);

}  // namespace drun::agent
