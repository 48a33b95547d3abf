// core. What agents and the coordinator say to each other about how nodes are (`drun status`). Part
// of control_message.h.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <cstdint>

#include "rendezvous/census.h"

namespace drun::rendezvous {

// From a member: `drun status` on this node: CensusTold comes back.
struct CensusAsked {
  std::uint64_t question = 0;
  bool operator==(const CensusAsked&) const = default;
};
// The answer to TellNode.
struct NodeTold {
  std::uint64_t census = 0;
  NodeSummary summary;
  bool operator==(const NodeTold&) const = default;
};

// From the coordinator: how are you? NodeTold comes back.
struct TellNode {
  std::uint64_t census = 0;
  bool operator==(const TellNode&) const = default;
};
struct CensusTold {
  std::uint64_t question = 0;
  Census census;
  bool operator==(const CensusTold&) const = default;
};

}  // namespace drun::rendezvous
