#include "rendezvous/job/rank_ranges.h"

#include <algorithm>

namespace drun {

void add_rank(RankRanges& ranges, int rank) {
  ranges.push_back({rank, rank});
  normalize(ranges);
}

void normalize(RankRanges& ranges) {
  const auto is_before = [](const RankRange& one, const RankRange& other) {
    return one.first < other.first;
  };
  if (!std::is_sorted(ranges.begin(), ranges.end(), is_before))
    std::sort(ranges.begin(), ranges.end(), is_before);
  std::size_t count = 0;
  for (const RankRange& range : ranges) {
    if (count > 0 && range.first <= ranges[count - 1].last + 1)
      ranges[count - 1].last = std::max(ranges[count - 1].last, range.last);
    else
      ranges[count++] = range;
  }
  ranges.resize(count);
}

RankRanges intersection(const RankRanges& one, const RankRanges& other) {
  RankRanges common;
  for (auto left = one.begin(), right = other.begin(); left != one.end() && right != other.end();) {
    const int first = std::max(left->first, right->first);
    const int last = std::min(left->last, right->last);
    if (first <= last) common.push_back({first, last});
    left->last < right->last ? ++left : ++right;
  }
  return common;
}

RankRanges difference(const RankRanges& from, const RankRanges& taken) {
  RankRanges rest;
  auto next = taken.begin();
  for (const RankRange& range : from) {
    int first = range.first;
    while (next != taken.end() && next->last < first) ++next;
    for (auto each = next; each != taken.end() && each->first <= range.last; ++each) {
      if (each->first > first) rest.push_back({first, each->first - 1});
      first = each->last + 1;
      next = each;  // may also overlap the next range
    }
    if (first <= range.last) rest.push_back({first, range.last});
  }
  return rest;
}

std::size_t count_of(const RankRanges& ranges) {
  std::size_t count = 0;
  for (const RankRange& range : ranges)
    count += static_cast<std::size_t>(std::max(range.last - range.first + 1, 0));
  return count;
}

bool contains(const RankRanges& ranges, int rank) {
  return std::any_of(ranges.begin(), ranges.end(), [rank](const RankRange& range) {
    return rank >= range.first && rank <= range.last;
  });
}

std::string ranks_text(const RankRanges& ranges) {
  constexpr std::size_t kShownRanges = 64;
  const std::size_t count = count_of(ranges);
  std::string text = count == 1 ? "rank" : "ranks";
  std::size_t shown = 0;
  for (std::size_t i = 0; i < std::min(ranges.size(), kShownRanges); ++i) {
    const RankRange& range = ranges[i];
    text += (i == 0 ? " " : ", ") + std::to_string(range.first);
    if (range.last > range.first)
      text += (range.last == range.first + 1 ? ", " : "-") + std::to_string(range.last);
    shown += count_of({range});
  }
  return shown < count ? text + " and " + std::to_string(count - shown) + " more" : text;
}

}  // namespace drun
