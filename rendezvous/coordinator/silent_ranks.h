// core. Workers that show no sign of life: how a node's agent reports them, and what the
// coordinator keeps of all nodes. Ranks are ranges throughout, so that a job of any size costs
// O(ranges), and 4 bytes a rank for its pid.
//
// Limits:  of a message: control_wire.h. Of one node the coordinator keeps kMostGroupsKept groups
//          (the ranks of further ones join the last, whose words then stand for them) and
//          kMostPidsKept pids (the pids of further ranks are 0). No honest node has more than
//          kMostRangesKept ranges.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

// One node's report: the groups of each HangSuspected. `suspects`: brief failures with status
// Hung; others are ignored. Suspects with the same words, role and program share a group.
std::vector<std::vector<SuspectGroup>> suspect_messages(std::vector<Failure> suspects);

class Suspects {
 public:
  struct Node {
    int node_rank = 0;
    int base_rank = 0;
    int workers = 0;
  };
  // The first report of a rank stays: a later one may be due to the look itself. False: the node
  // breaks the protocol (ranks that are not its own, ranges in disorder, too many of them, a status
  // that is not Hung).
  bool add(const Node& node, const std::vector<SuspectGroup>& groups);

  bool empty() const { return by_base_rank_.empty(); }
  void clear() { by_base_rank_.clear(); }
  RankRanges ranks() const;
  // Requires that the rank is a suspect. Its round is the caller's to fill in.
  Failure failure_of(int rank) const;

 private:
  static constexpr std::size_t kMostGroupsKept = 64;
  static constexpr std::size_t kMostRangesKept = 65'536;
  static constexpr std::size_t kMostPidsKept = 131'072;
  struct OfNode {
    int node_rank = 0;
    RankRanges ranks{};
    std::vector<SuspectGroup> groups{};
    std::size_t pids = 0;
  };

  std::map<int, OfNode> by_base_rank_;
};

}  // namespace drun::rendezvous
