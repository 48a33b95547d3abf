// core. Which node gets which number when a world forms, in worlds whose size may change.
//
// Rule:    nodes that stay keep their number as long as the new world has it; the other numbers go
//          to returning nodes that had them, to nodes that stay but whose number is gone, and to
//          new nodes, in `RankOrder`.
// Source:  torch elastic sorts the names as plain text (node10 before node2), anew in every round.
// Thread:  any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/join_spec.h"

namespace drun::rendezvous {

struct Applicant {
  std::string host;
  int slot = 0;                 // tells agents of one host apart
  std::uint64_t arrival = 0;    // earlier is less
  bool is_coordinator = false;  // its agent is the coordinator's
  bool stays = false;           // it was in the world before, with `last_rank`
  std::optional<int> last_rank{};
};

// order[n] is the index of the applicant that becomes node n: all of them, without gaps.
std::vector<std::size_t> number_nodes(std::span<const Applicant> applicants, RankOrder order);

// node2 before node10; runs of digits compare as numbers, the rest as bytes.
bool is_naturally_less(std::string_view left, std::string_view right);

}  // namespace drun::rendezvous
