#include "agent/hang/hang_verdict.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

namespace drun::agent {
namespace {

constexpr std::size_t kMostGroupsAtOnce = 256;  // while answers arrive; about 30 KiB each
constexpr std::size_t kTextBytes = std::size_t{30} << 10;  // a failure's traceback carries 32 KiB

using Place = RankPositions::Place;

std::uint64_t hash_of(const std::vector<std::string>& lines) {
  std::uint64_t hash = lines.size();
  for (const std::string& line : lines)
    hash = (hash ^ std::hash<std::string>()(line)) * 0x9E3779B97F4A7C15U;
  return hash;
}

template <typename Is>
RankRanges ranks_where(const RankPositions& positions, Is is) {
  RankRanges ranks;
  for (const auto& [place, there] : positions.places)
    if (is(place)) ranks.insert(ranks.end(), there.begin(), there.end());
  normalize(ranks);
  return ranks;
}

// The operation of the lowest rank.
std::string doing_of(const RankPositions& positions, const RankRanges& ranks) {
  for (const auto& [place, there] : positions.places)
    if (!ranks.empty() && contains(there, ranks.front().first)) return place.doing;
  return "";
}

HangVerdict blame(const RankPositions& positions, RankRanges culprits) {
  std::string words = doing_of(positions, culprits);
  return {.culprits = std::move(culprits), .words = std::move(words)};
}

// Rule 1; nullopt if the counts do not decide.
std::optional<HangVerdict> by_counts(const RankPositions& positions, const RankRanges& silent) {
  std::optional<std::uint64_t> least;
  bool do_differ = false;
  for (const auto& [place, there] : positions.places) {
    if (place.arrived == 0) continue;
    do_differ = do_differ || (least && place.arrived != *least);
    least = std::min(least.value_or(place.arrived), place.arrived);
  }
  if (!do_differ) return std::nullopt;
  const RankRanges behind =
      ranks_where(positions, [&](const Place& place) { return place.arrived == *least; });
  RankRanges culprits = intersection(silent, behind);
  // Nodes are looked at one after the other. If a rank that is ahead shows signs of life, it may
  // have gone on since the look at a rank that waited for it, which has then gone on too.
  const RankRanges ahead = ranks_where(
      positions, [&](const Place& place) { return place.arrived > *least && !place.is_quiet; });
  if (!ahead.empty() && !culprits.empty()) {
    const RankRanges inside = ranks_where(
        positions, [&](const Place& place) { return place.is_inside && place.arrived == *least; });
    culprits = difference(culprits, inside);
    if (culprits.empty())
      return HangVerdict{.words = ranks_text(ahead) + " made progress during the look"};
  }
  if (!culprits.empty()) return blame(positions, culprits);
  // If all silent ranks are inside an operation, they wait for `behind`.
  const RankRanges waiting =
      ranks_where(positions, [](const Place& place) { return place.is_inside; });
  if (!difference(silent, waiting).empty()) return std::nullopt;
  return HangVerdict{.words = ranks_text(silent) + " wait " + doing_of(positions, silent) +
                              " for " + ranks_text(behind) + ", not silent"};
}

// Rule 1, the same operation; nullopt if it does not apply.
std::optional<HangVerdict> by_same_operation(const RankPositions& positions,
                                             const RankRanges& silent) {
  const std::uint64_t number =
      positions.places.empty() ? 0 : positions.places.begin()->first.arrived;
  if (number == 0) return std::nullopt;
  const RankRanges there =
      ranks_where(positions, [&](const Place& place) { return place.arrived == number; });
  const RankRanges inside = ranks_where(positions, [](const Place& p) { return p.is_inside; });
  const RankRanges all = ranks_where(positions, [](const Place&) { return true; });
  const bool are_others_awake = !difference(all, silent).empty();
  if (there != all || !difference(silent, inside).empty() || !are_others_awake) return std::nullopt;
  return HangVerdict{.begun_by_all = number,
                     .words = ranks_text(silent) + " wait " + doing_of(positions, silent) +
                              ", which all ranks have begun"};
}

// Rule 2; nullopt if NCCL's counts do not decide.
std::optional<HangVerdict> by_nccl(const RankPositions& positions, const RankRanges& silent) {
  const auto ranks_of = [&positions](NcclPosition stand) {
    return ranks_where(positions, [stand](const Place& place) { return place.nccl == stand; });
  };
  const RankRanges behind = ranks_of(NcclPosition::Behind);
  if (behind.empty()) return std::nullopt;
  const RankRanges culprits = intersection(silent, behind);
  if (!culprits.empty()) return blame(positions, culprits);
  if (!difference(silent, ranks_of(NcclPosition::Ahead)).empty()) return std::nullopt;
  return HangVerdict{.words = ranks_text(silent) + " wait in NCCL for " + ranks_text(behind) +
                              ", not silent"};
}

// Rule 4.
RankRanges outsiders(const RankPositions& positions, const RankRanges& silent) {
  std::map<std::uint64_t, std::size_t> sizes;
  std::size_t total = 0;
  for (const auto& [place, there] : positions.places) {
    sizes[place.stack] += count_of(there);
    total += count_of(there);
  }
  const auto largest = std::max_element(
      sizes.begin(), sizes.end(),
      [](const auto& one, const auto& other) { return one.second < other.second; });
  if (largest == sizes.end() || 2 * largest->second <= total) return {};
  return intersection(silent, ranks_where(positions, [&](const Place& place) {
                        return place.stack != largest->first;
                      }));
}

}  // namespace

void note(RankPositions& positions, const Evidence& evidence) {
  for (const StackGroup& group : evidence.groups) {
    RankRanges& ranks = positions.places[{.stack = hash_of(group.lines),
                                          .arrived = group.arrived,
                                          .is_inside = group.is_inside,
                                          .is_quiet = group.is_quiet,
                                          .nccl = group.nccl,
                                          .doing = group.doing}];
    ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
  }
}

HangVerdict judge(const RankPositions& positions, const RankRanges& suspects,
                  std::optional<std::uint64_t> begun_by_all) {
  const RankRanges alive =
      ranks_where(positions, [](const Place& place) { return !place.is_quiet; });
  const RankRanges silent = difference(suspects, alive);
  if (silent.empty()) return {.words = "they show signs of life again"};
  if (const auto verdict = by_counts(positions, silent)) return *verdict;
  const auto same = by_same_operation(positions, silent);
  if (same && same->begun_by_all != begun_by_all) return *same;
  if (const auto verdict = by_nccl(positions, silent)) return *verdict;
  const RankRanges all = ranks_where(positions, [](const Place&) { return true; });
  if (!difference(all, silent).empty()) return blame(positions, silent);
  const RankRanges outside = outsiders(positions, silent);
  if (!outside.empty()) return blame(positions, outside);
  HangVerdict verdict = blame(positions, silent);
  verdict.are_all = true;
  return verdict;
}

bool MergedStacks::add(const RankRange& ranks, std::string_view answer) {
  const std::optional<Evidence> evidence = decode_evidence(answer);
  if (!evidence) return false;
  for (const StackGroup& group : evidence->groups) {
    for (const RankRange& range : group.ranks)
      if (range.first < ranks.first || range.last > ranks.last) return false;
  }
  note(positions_, *evidence);
  gather(found_, *evidence);
  if (found_.groups.size() <= kMostGroupsAtOnce) return true;
  settle(found_);
  shrink(found_);
  return true;
}

std::string MergedStacks::merged() {
  settle(found_);
  return encode_evidence(found_);
}

std::string MergedStacks::text() {
  settle(found_);
  shrink(found_);
  std::string text;
  for (const std::string& line : evidence_lines(found_, 400)) {
    if (text.size() + line.size() > kTextBytes) return text + "...\n";
    text += line + "\n";
  }
  return text;
}

std::unique_ptr<StackAnswers> make_merged_stacks() { return std::make_unique<MergedStacks>(); }

}  // namespace drun::agent
