// core. Which rank made a job hang: of those that show no sign of life most only wait for it.
//
// Rules, the first that tells:
//   1. Operations of the whole world are counted (worker_lib): ranks that have begun fewer than the
//      others are waited for. Those of them that are silent have hung; if none of them is, somebody
//      is only slow, and nobody has hung.
//   2. NCCL counts, too, and says who lags or does not answer: the same of those, with the ranks
//      that NCCL says are ahead as those that wait.
//   3. Some ranks are silent and others are not: the silent ones.
//   4. All are silent: those outside of the largest group of equal stacks, if that is more than
//      half of all.
//   5. It cannot be told: all of them.
//
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <set>
#include <string>

#include "rendezvous/evidence.h"

namespace drun::rendezvous {

struct HangVerdict {
  std::set<int> culprits{};  // suspects all; empty: nobody has hung
  bool are_all = false;      // rule 5
  std::string words{};       // "last ended all_reduce #811, not in one", or why nobody has hung
  bool operator==(const HangVerdict&) const = default;
};

RankRanges ranges_of(const std::set<int>& ranks);

// `suspects`: ranks that were silent; those that the evidence shows alive again are none any more.
HangVerdict judge(const Evidence& evidence, const std::set<int>& suspects);

}  // namespace drun::rendezvous
