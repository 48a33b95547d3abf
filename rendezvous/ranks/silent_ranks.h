// core. Workers without activity: how a node's agent reports them, and how the coordinator stores
// the reports. Ranks are stored as ranges, so that a job of any size costs O(ranges), and 4 bytes a
// rank for its pid.
//
// Limits:  of a message: control_wire.h. For each node, the coordinator keeps kMostGroupsKept
//          groups (it adds the ranks of further groups to the last one, with the text of that one)
//          and kMostPidsKept pids (the pids of further ranks are 0). A node that reports more than
//          kMostRangesKept ranges breaks the protocol.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/job/stack_answers.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/ranks/failure_list.h"

namespace drun::rendezvous {

// One node's report: the groups of each HangSuspected. `suspects`: brief failures with status
// Hung; others are ignored. Suspects with the same text, role and program share a group.
std::vector<std::vector<SuspectGroup>> suspect_messages(std::vector<Failure> suspects);

class Suspects {
 public:
  struct Node {
    int node_rank = 0;
    int base_rank = 0;
    int workers = 0;
  };
  // Keeps the first report of each rank, because the query itself may cause later ones. Returns
  // false if the node breaks the protocol (ranks of other nodes, unordered ranges, too many of
  // them, a status that is not Hung).
  bool add(const Node& node, const std::vector<SuspectGroup>& groups);

  bool empty() const { return by_base_rank_.empty(); }
  void clear() { by_base_rank_.clear(); }
  RankRanges ranks() const;
  // Adds a failure of each culprit to `failures`. The first one's texts name all culprits and
  // contain `stacks`.
  struct Moment {
    int round = 0;
    std::chrono::steady_clock::time_point time{};
  };
  void add_hung(const HangVerdict& verdict, const std::string& stacks, Moment moment,
                FailureList& failures) const;
  // Requires that the rank is a suspect. The caller sets the round.
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
