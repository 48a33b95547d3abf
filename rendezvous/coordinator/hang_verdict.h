// core. Which rank made a job hang: of those that show no sign of life most only wait for it.
//
// Rules, the first that tells:
//   1. Operations of the whole world are counted (worker_lib): ranks that have begun fewer than the
//      others are being waited for. The silent ones of them have hung; if none is silent, a rank is
//      only slow, and there is no hang.
//   2. NCCL counts, too, and says who lags or does not answer: the same of those, with the ranks
//      that NCCL says are ahead as those that wait.
//   3. Some ranks are silent and others are not: the silent ones.
//   4. All are silent: those outside of the largest group of equal stacks, if that is more than
//      half of all.
//   5. Otherwise it is unknown: all of them.
//
// Cost:    O(ranges log ranges), whatever the number of ranks. No limit on either.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "rendezvous/job/evidence.h"

namespace drun::rendezvous {

// Where ranks stand, without their stacks: no rank is left out to save space, as in Evidence.
struct RankPositions {
  struct Place {
    std::uint64_t stack = 0;  // a hash of the group's lines
    std::uint64_t arrived = 0;
    bool is_inside = false;
    bool is_quiet = false;
    NcclPosition nccl = NcclPosition::None;
    std::string doing{};
    // clang-tidy 14 takes the 0 that a defaulted comparison implies for a null pointer.
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  std::map<Place, RankRanges> places{};  // ranges in any order
};

// One node's answer. Ranks are counted once: answers are of different ranks.
void note(RankPositions& standings, const Evidence& evidence);

struct HangVerdict {
  RankRanges culprits{};  // suspects all; empty: no hang
  bool are_all = false;   // rule 5
  std::string words{};    // "last ended all_reduce #811, not in one", or why there is no hang
  bool operator==(const HangVerdict&) const = default;
};

// `suspects`: ranks that were silent; those that are shown alive again are none any more.
HangVerdict judge(const RankPositions& standings, const RankRanges& suspects);

}  // namespace drun::rendezvous
