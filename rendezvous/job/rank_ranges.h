// core. Sets of ranks as ranges, so that a job of any size costs O(ranges).
//
// Shape:   normalized ranges are ascending, and neither overlap nor touch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace drun {

struct RankRange {
  int first = 0;
  int last = 0;
  bool operator==(const RankRange&) const = default;
};
using RankRanges = std::vector<RankRange>;

void add_rank(RankRanges& ranges, int rank);
// Sorts `ranges` and joins those that overlap or touch.
void normalize(RankRanges& ranges);
std::size_t count_of(const RankRanges& ranges);
bool contains(const RankRanges& ranges, int rank);
// Both need normalized ranges and take linear time.
RankRanges intersection(const RankRanges& one, const RankRanges& other);
RankRanges difference(const RankRanges& from, const RankRanges& taken);
// "rank 7", "ranks 0-6, 8-63"; of more than 64 ranges the first, and the number of other ranks.
std::string ranks_text(const RankRanges& ranges);

}  // namespace drun
