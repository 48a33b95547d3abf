// core. The nodes that an elastic job excludes because their workers fail repeatedly
// (--exclude-after). Part of the coordinator's state (round.h).
//
// Rule:    a node is at fault if the root cause of a failed round is one of its workers. Rounds
//          that end for other reasons (a node joins, leaves or is lost) do not change the count of
//          consecutive failures.
// Limits:  1024 excluded nodes; beyond that, the oldest entry is dropped.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun::rendezvous {

using AgentId = std::pair<std::string, int>;  // host and address, slot

struct Exclusions {
  struct Entry {
    AgentId id;
    LeftOut told;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> nodes{};  // in order of time
  std::optional<AgentId> last_at_fault{};
  int failures_in_a_row = 0;
  bool operator==(const Exclusions&) const = default;
};

// Records that the root cause of a failed round was on `id`. Returns the number of consecutive
// failures of `id`.
int count_failure(Exclusions& exclusions, const AgentId& id);

// Excludes `id` and resets the count.
void leave_out(Exclusions& exclusions, const AgentId& id, LeftOut told);

// Records a node that an earlier coordinator excluded, as reported by a member. Does not reset the
// count. Returns false if it was already known.
bool inherit_left_out(Exclusions& exclusions, const AgentId& id, LeftOut told);

// "its workers were the first to fail in 3 rounds in a row (--exclude-after=2)"
std::string left_out_reason(int failures, int most);

bool is_left_out(const Exclusions& exclusions, const AgentId& id);

// Why `id` cannot join; nothing if it can.
std::optional<Error> exclusion_objection(const Exclusions& exclusions, const AgentId& id);

// The excluded nodes, for the outcome.
std::vector<LeftOut> all_left_out(const Exclusions& exclusions);

}  // namespace drun::rendezvous
