// core. Assigns the node ranks of an elastic world.
//
// Rule:    nodes that stay keep their rank if the new world has it. The other ranks go first to
//          returning nodes that had them, then to nodes that stay but whose rank is gone, and then
//          to new nodes, in `RankOrder`.
// Source:  torch elastic sorts the names as plain text (node10 before node2), anew in every round.
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
  int slot = 0;                 // distinguishes agents of one host
  std::uint64_t arrival = 0;    // increases with each arrival
  bool is_coordinator = false;  // its agent is the coordinator
  bool stays = false;           // it was in the previous world, with `last_rank`
  std::optional<int> last_rank{};
};

// order[n] is the index of the applicant that becomes node n. Contains all applicants.
std::vector<std::size_t> number_nodes(std::span<const Applicant> applicants, RankOrder order);

// Orders node2 before node10: runs of digits compare as numbers, the rest as bytes.
bool is_naturally_less(std::string_view left, std::string_view right);

}  // namespace drun::rendezvous
