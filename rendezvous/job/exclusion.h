// core. Which nodes an elastic world does without, because their workers fail again and again.
//
// Rule:    a node is at fault when the root cause of a failed round is one of its workers. What
//          ends rounds otherwise (a node joins, leaves, is lost) neither counts nor breaks the row.
// Limits:  a node at most for each failure; beyond 1024 the oldest are forgotten.
// Owner:   a value, part of the coordinator's state (round.h).   Thread: any.
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

// A round has failed, first on `id`. Returns how many in a row have.
int count_failure(Exclusions& exclusions, const AgentId& id);

// From here on `id` is left out; the row begins anew.
void leave_out(Exclusions& exclusions, const AgentId& id, LeftOut told);

// The same by a coordinator before, as a member of it tells: no row ends by it. False: it was
// known.
bool inherit_left_out(Exclusions& exclusions, const AgentId& id, LeftOut told);

// "its workers were the first to fail in 3 rounds in a row (--exclude-after=2)"
std::string left_out_reason(int failures, int most);

bool is_left_out(const Exclusions& exclusions, const AgentId& id);

// Why `id` cannot join; nothing if it can.
std::optional<Error> exclusion_objection(const Exclusions& exclusions, const AgentId& id);

// What outcomes tell.
std::vector<LeftOut> all_left_out(const Exclusions& exclusions);

}  // namespace drun::rendezvous
