// What simulated nodes answer to queries, and checks of the results.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "agent/hang/hang_verdict.h"
#include "agent/stacks/evidence.h"
#include "agent/status/node_status.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/world.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::test {

// The stacks of a node whose first worker may hang.
inline std::string stacks_of(const std::optional<World>& running, bool is_hung) {
  agent::Evidence evidence;
  if (running) {
    const int first = running->base_rank;
    const int last = first + running->local_world_size - 1;
    evidence.groups.push_back({.ranks = {{first, first}},
                               .is_quiet = is_hung,
                               .source = "sim",
                               .lines = {is_hung ? "there" : "here"}});
    if (last > first)
      evidence.groups.push_back({.ranks = {{first + 1, last}}, .source = "sim", .lines = {"here"}});
  }
  return agent::encode_evidence(evidence);
}

// Whether the result of a query of the stacks lists no rank twice.
inline bool has_each_rank_once(const rendezvous::QueryResult& result) {
  if (!result.note.empty()) return true;
  const std::optional<agent::Evidence> evidence = agent::decode_evidence(result.answer);
  if (!evidence) return false;
  std::set<int> seen;
  for (const agent::StackGroup& group : evidence->groups) {
    for (const RankRange& range : group.ranks) {
      for (int rank = range.first; rank <= range.last; ++rank)
        if (!seen.insert(rank).second) return false;
    }
  }
  return true;
}

}  // namespace drun::test
