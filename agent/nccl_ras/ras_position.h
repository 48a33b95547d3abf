// core. The state of this node's workers according to NCCL's RAS service: workers that others wait
// for, and workers that wait, by the job's ranks.
//
// A worker is identified by its host address and the pids of its process tree. It is behind if it
// has launched fewer operations of a kind than other ranks of a communicator, or does not respond
// to the service. A worker that is behind in one communicator and ahead in another is only waiting,
// unless this is true of all workers that are behind.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/nccl_ras/ras_report.h"
#include "agent/stacks/evidence.h"

namespace drun::agent::ras {

struct Own {
  std::set<std::string> addresses{};     // of this machine, numeric
  std::vector<std::vector<int>> pids{};  // by local rank
};

struct RankPosition {
  bool is_known = false;  // false: the other fields are not set
  NcclPosition stand = NcclPosition::None;
  // Changes when the worker launches operations, or when the slowest rank of one of its
  // communicators does.
  std::uint64_t progress = 0;
  // Describes how it is behind: "is at all_reduce 811 in a communicator of 8, the others at 812".
  std::string words{};
  bool operator==(const RankPosition&) const = default;
};

struct Findings {
  std::vector<RankPosition> positions{};  // by local rank; empty: no answer
  std::vector<std::string> notes{};       // sentences for the evidence
};

// `base_rank`: the rank of local rank 0.
Findings find(const Report& report, const Own& own, int base_rank);

}  // namespace drun::agent::ras
