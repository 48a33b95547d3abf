// core. The state of this node's workers according to NCCL's RAS service: the ones that others wait
// for, and the ones that wait, by the job's ranks.
//
// Known by: host address and pid. A worker's pids are its own and those of what runs below it.
// Behind:  it has launched fewer operations of a kind than others of a communicator, or the service
//          gets no answer from it. A worker that lags in one communicator and is ahead in another
//          is only waiting, unless that is true of all that lag.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/nccl_ras/ras_report.h"
#include "rendezvous/job/evidence.h"

namespace drun::agent::ras {

struct Own {
  std::set<std::string> addresses{};     // of this machine, numeric
  std::vector<std::vector<int>> pids{};  // by local rank
};

struct RankPosition {
  bool is_known = false;  // else the rest says nothing
  NcclPosition stand = NcclPosition::None;
  // Changes when it launches operations, or when the last rank of one of its communicators does.
  std::uint64_t progress = 0;
  // How it is behind: "is at all_reduce 811 in a communicator of 8, the others at 812".
  std::string words{};
  bool operator==(const RankPosition&) const = default;
};

struct Findings {
  std::vector<RankPosition> standings{};  // by local rank; empty: nothing was answered
  std::vector<std::string> notes{};       // sentences for the evidence
};

// `base_rank`: that of local rank 0.
Findings find(const Report& report, const Own& own, int base_rank);

}  // namespace drun::agent::ras
