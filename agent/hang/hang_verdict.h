// core. Merges the evidence of all nodes (MergedStacks), and decides which ranks caused a hang. In
// a job that hangs, most of the silent ranks (those without activity) only wait for the rank that
// hung.
//
// The first rule that applies decides:
//   1. worker_lib counts the operations of the whole world: the other ranks wait for those that
//      have begun the fewest. The silent ranks among these have hung, unless ranks that are ahead
//      made progress during the look. If none of them is silent and all silent ranks are inside an
//      operation, a rank is only slow, and there is no hang. If all ranks have begun the same
//      number and the silent ones are inside the last of these, the others may just have arrived:
//      there is no hang yet, unless the look before found the same.
//   2. NCCL also counts, and reports ranks that are behind or do not respond: the silent ranks
//      among these have hung. If none of them is silent and NCCL reports all silent ranks as ahead,
//      there is no hang.
//   3. If some ranks are silent and others are not, the silent ranks have hung.
//   4. If all ranks are silent, and one group of equal stacks has more than half of them, the ranks
//      outside of that group have hung.
//   5. Otherwise the cause is unknown: the verdict names all silent ranks.
//
// Cost:    O(ranges log ranges), independent of the number of ranks. Neither has a limit.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/stacks/evidence.h"
#include "rendezvous/job/stack_answers.h"

namespace drun::agent {

// The positions of all ranks, without the text of their stacks. Unlike Evidence, it omits no rank.
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

// Adds one node's answer. No two answers may contain the same rank.
void note(RankPositions& positions, const Evidence& evidence);

// `suspects`: ranks that were reported as silent. Those that are active again do not count.
// `begun_by_all`: of the verdict before, in this round.
HangVerdict judge(const RankPositions& positions, const RankRanges& suspects,
                  std::optional<std::uint64_t> begun_by_all = {});

// The evidence of all nodes, merged as it arrives. The coordinator gets it through JoinSpec.
class MergedStacks final : public StackAnswers {
 public:
  bool add(const RankRange& ranks, std::string_view answer) override;
  void add_note(const std::string& note) override { found_.notes.push_back(note); }
  std::string merged() override;
  std::string text() override;
  HangVerdict judge(const RankRanges& suspects,
                    std::optional<std::uint64_t> begun_by_all) const override {
    return agent::judge(positions_, suspects, begun_by_all);
  }

 private:
  Evidence found_;           // to be shown, within the limits of a message
  RankPositions positions_;  // of all ranks
};
std::unique_ptr<StackAnswers> make_merged_stacks();

}  // namespace drun::agent
