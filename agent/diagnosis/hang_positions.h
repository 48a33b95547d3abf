// core. Interprets the stacks and counts of a hang: which ranks wait in a collective, and which
// ones they wait for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/diagnosis/diagnosis.h"
#include "agent/diagnosis/gpu_faults.h"
#include "agent/stacks/evidence.h"

namespace drun::agent {

// StackGroup::doing of a rank that has begun more operations than others, by NCCL's counts.
inline constexpr std::string_view kAheadInNccl = "ahead of other ranks (NCCL)";

enum class Position {
  Unknown,
  Waits,       // probably for others: its main thread sleeps on a lock or in poll
  Collective,  // is in one
  Outside,     // is not in one, and others may wait for it
  DataLoader,  // waits for data
  Stopped,     // by a signal or a debugger
  Ending,      // runs what its program left for its end
  Ended,
};

struct GroupPosition {
  Position position = Position::Unknown;
  std::string op{};                       // "all_reduce"; empty: not known
  std::optional<std::uint64_t> number{};  // its count in the whole world
  bool is_awaited = false;                // others wait for it, by counts
  bool is_guessed = false;                // only by the state of its main thread
  std::string bytes{};                    // "4096 bytes"
  std::string place{};                    // "train.py:33", or the innermost frame
};

GroupPosition position_of(const StackGroup& group);

// Whether each rank that `evidence` contains, except `others`, is in a collective. False if it
// contains none.
bool is_every_rank_in_collective(const Evidence& evidence, const RankRanges& others);
RankRanges ending_ranks(const Evidence& evidence);

// The ranks of all groups but the largest one; of all groups if several are largest.
RankRanges ranks_that_differ(const std::vector<RankRanges>& groups);

inline constexpr const char* kSameCallsAdvice =
    "make every rank call the same collectives in the same order with the same shapes";

// Ranks that made different calls: "desync: rank 1 is in broadcast, ranks 0, 2 are in all_reduce".
// `one`, `many`: the verbs, with blanks around.
using CallGroups = std::map<std::string, RankRanges>;  // by the call
Diagnosis desync_of(CallGroups& calls, const char* one, const char* many);

// An error of a GPU, which `line` of the node's kernel log reports.
Diagnosis hardware_of(int node, const RankRanges& ranks, const GpuFault& fault,
                      std::string_view line);

// "rank 7", "ranks 0-6, 8-63"; empty: `text` is something else.
RankRanges read_ranks(std::string_view text);

// Reads what evidence_lines wrote. Lines that it does not know are skipped.
Evidence read_evidence(std::string_view text);

// `suspects`: the ranks that are taken for hung. Never of class None.
Diagnosis diagnose_hang(const Evidence& evidence, const RankRanges& suspects, int world_size);

}  // namespace drun::agent
