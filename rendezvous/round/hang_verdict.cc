#include "rendezvous/round/hang_verdict.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

namespace drun::rendezvous {
namespace {

std::optional<StackGroup> group_of(const Evidence& evidence, int rank) {
  for (const StackGroup& group : evidence.groups)
    if (contains(group.ranks, rank)) return group;
  return std::nullopt;
}

std::string doing_of(const Evidence& evidence, const std::set<int>& ranks) {
  if (ranks.empty()) return "";
  const auto group = group_of(evidence, *ranks.begin());
  return group ? group->doing : "";
}

std::set<int> suspects_in(const RankRanges& ranges, const std::set<int>& suspects) {
  std::set<int> found;
  for (const int rank : suspects)
    if (contains(ranges, rank)) found.insert(rank);
  return found;
}

// Rule 1; nothing when the counts do not tell.
std::optional<HangVerdict> by_counts(const Evidence& evidence, const std::set<int>& suspects) {
  std::map<std::uint64_t, RankRanges> by_arrived;
  for (const StackGroup& group : evidence.groups) {
    if (group.arrived == 0) continue;
    for (const RankRange& range : group.ranks) by_arrived[group.arrived].push_back(range);
  }
  if (by_arrived.size() < 2) return std::nullopt;
  const RankRanges& behind = by_arrived.begin()->second;
  const std::set<int> culprits = suspects_in(behind, suspects);
  if (!culprits.empty())
    return HangVerdict{.culprits = culprits, .words = doing_of(evidence, culprits)};
  // Do all who are silent wait for them?
  for (const int rank : suspects) {
    const auto group = group_of(evidence, rank);
    if (!group || !group->is_inside) return std::nullopt;
  }
  return HangVerdict{.words = ranks_text(ranges_of(suspects)) + " wait " +
                              doing_of(evidence, suspects) + " for " + ranks_text(behind) +
                              ", not silent"};
}

// Rule 2; nothing when NCCL does not tell.
std::optional<HangVerdict> by_nccl(const Evidence& evidence, const std::set<int>& suspects) {
  RankRanges behind;
  for (const StackGroup& group : evidence.groups)
    if (group.nccl == NcclStand::Behind)
      behind.insert(behind.end(), group.ranks.begin(), group.ranks.end());
  if (behind.empty()) return std::nullopt;
  const std::set<int> culprits = suspects_in(behind, suspects);
  if (!culprits.empty())
    return HangVerdict{.culprits = culprits, .words = doing_of(evidence, culprits)};
  for (const int rank : suspects) {
    const auto group = group_of(evidence, rank);
    if (!group || group->nccl != NcclStand::Ahead) return std::nullopt;
  }
  return HangVerdict{.words = ranks_text(ranges_of(suspects)) + " wait in NCCL for " +
                              ranks_text(behind) + ", not silent"};
}

// Rule 4.
std::set<int> outsiders(const Evidence& evidence, const std::set<int>& suspects) {
  std::map<std::vector<std::string>, std::size_t> sizes;
  std::size_t total = 0;
  for (const StackGroup& group : evidence.groups) {
    sizes[group.lines] += count_of(group.ranks);
    total += count_of(group.ranks);
  }
  const auto largest = std::max_element(
      sizes.begin(), sizes.end(),
      [](const auto& one, const auto& other) { return one.second < other.second; });
  if (largest == sizes.end() || 2 * largest->second <= total) return {};
  std::set<int> found;
  for (const StackGroup& group : evidence.groups) {
    if (group.lines == largest->first) continue;
    found.merge(suspects_in(group.ranks, suspects));
  }
  return found;
}

}  // namespace

RankRanges ranges_of(const std::set<int>& ranks) {
  RankRanges ranges;
  for (const int rank : ranks) add_rank(ranges, rank);
  return ranges;
}

HangVerdict judge(const Evidence& evidence, const std::set<int>& suspects) {
  std::set<int> silent;
  std::size_t total = 0;
  for (const int rank : suspects) {
    const auto group = group_of(evidence, rank);
    if (!group || group->is_quiet) silent.insert(rank);
  }
  if (silent.empty()) return {.words = "they show signs of life again"};
  if (const auto verdict = by_counts(evidence, silent)) return *verdict;
  if (const auto verdict = by_nccl(evidence, silent)) return *verdict;
  for (const StackGroup& group : evidence.groups) total += count_of(group.ranks);
  if (silent.size() < total) return {.culprits = silent, .words = doing_of(evidence, silent)};
  const std::set<int> outside = outsiders(evidence, silent);
  if (!outside.empty()) return {.culprits = outside, .words = doing_of(evidence, outside)};
  return {.culprits = silent, .are_all = true, .words = doing_of(evidence, silent)};
}

}  // namespace drun::rendezvous
