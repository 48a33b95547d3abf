#include "rendezvous/job/evidence.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/bytes.h"

namespace drun {
namespace {

constexpr std::size_t kShownRanges = 64;

bool stand_together(const StackGroup& one, const StackGroup& other) {
  return one.doing == other.doing && one.arrived == other.arrived &&
         one.is_inside == other.is_inside && one.is_quiet == other.is_quiet &&
         one.nccl == other.nccl && one.source == other.source && one.lines == other.lines;
}

void sort_by_size(std::vector<StackGroup>& groups) {
  struct Sized {
    std::size_t count = 0;
    int first = 0;
    StackGroup group{};
  };
  std::vector<Sized> sized;
  sized.reserve(groups.size());
  for (StackGroup& group : groups) {
    const int first = group.ranks.empty() ? 0 : group.ranks.front().first;
    sized.push_back({count_of(group.ranks), first, std::move(group)});
  }
  std::stable_sort(sized.begin(), sized.end(), [](const Sized& one, const Sized& other) {
    return one.count != other.count ? one.count > other.count : one.first < other.first;
  });
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = std::move(sized[i].group);
}

void note(std::vector<std::string>& notes, const std::string& text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

void cut(std::string& text) { text = rendezvous::cut_text(text, kStackLineBytes); }

void cut_lines(StackGroup& group) {
  if (group.lines.size() > kMostStackLines) {
    const std::size_t more = group.lines.size() - kMostStackLines + 1;
    group.lines.resize(kMostStackLines - 1);
    group.lines.push_back("... " + std::to_string(more) + " more lines");
  }
  for (std::string& line : group.lines) cut(line);
  cut(group.doing);
  cut(group.source);
  if (group.ranks.size() > kMostRankRanges) group.ranks.resize(kMostRankRanges);
}

std::size_t size_bytes(const StackGroup& group) {
  constexpr std::size_t kOverhead = 8;
  std::size_t bytes = 64 + group.doing.size() + group.source.size() + 16 * group.ranks.size();
  for (const std::string& line : group.lines) bytes += line.size() + kOverhead;
  return bytes;
}

std::string head_of(const StackGroup& group) {
  std::string text = ranks_text(group.ranks) + ":";
  if (!group.doing.empty()) text += " " + group.doing;
  if (group.is_quiet) text += group.doing.empty() ? " no sign of life" : ", no sign of life";
  return text + " (" + group.source + ")";
}

}  // namespace

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

void merge(Evidence& into, const Evidence& found) {
  gather(into, found);
  settle(into);
}

void gather(Evidence& into, const Evidence& found) {
  for (const StackGroup& group : found.groups) {
    const auto same =
        std::find_if(into.groups.begin(), into.groups.end(),
                     [&group](const StackGroup& each) { return stand_together(each, group); });
    if (same == into.groups.end())
      into.groups.push_back(group);
    else
      same->ranks.insert(same->ranks.end(), group.ranks.begin(), group.ranks.end());
  }
  for (const std::string& text : found.notes) note(into.notes, text);
  into.ranks_left_out += found.ranks_left_out;
}

void settle(Evidence& evidence) {
  for (StackGroup& group : evidence.groups) normalize(group.ranks);
  sort_by_size(evidence.groups);
}

void shrink(Evidence& evidence) {
  sort_by_size(evidence.groups);
  for (StackGroup& group : evidence.groups) {
    const std::size_t before = count_of(group.ranks);
    cut_lines(group);
    evidence.ranks_left_out += before - count_of(group.ranks);
  }
  // Keeps the largest group, then the smallest ones, which differ most.
  std::vector<StackGroup>& groups = evidence.groups;
  std::size_t bytes = groups.empty() ? 0 : size_bytes(groups.front());
  std::size_t first = groups.size();
  while (first > 1 && groups.size() - first + 1 < kMostStackGroups &&
         bytes + size_bytes(groups[first - 1]) <= kEvidenceBytes)
    bytes += size_bytes(groups[--first]);
  for (std::size_t i = 1; i < first; ++i) evidence.ranks_left_out += count_of(groups[i].ranks);
  if (first > 1)
    groups.erase(groups.begin() + 1, groups.begin() + static_cast<std::ptrdiff_t>(first));
  if (evidence.notes.size() > kMostEvidenceNotes) {
    const std::size_t more = evidence.notes.size() - kMostEvidenceNotes + 1;
    evidence.notes.resize(kMostEvidenceNotes - 1);
    evidence.notes.push_back("and " + std::to_string(more) + " more notes");
  }
  for (std::string& text : evidence.notes) cut(text);
}

std::vector<std::string> evidence_lines(const Evidence& evidence, std::size_t most_lines) {
  std::vector<std::string> lines;
  for (const StackGroup& group : evidence.groups) {
    lines.push_back(head_of(group));
    for (const std::string& line : group.lines) lines.push_back("  " + line);
  }
  if (evidence.ranks_left_out > 0)
    lines.push_back("and " + std::to_string(evidence.ranks_left_out) + " more ranks");
  for (const std::string& text : evidence.notes) lines.push_back("note: " + text);
  if (lines.size() <= most_lines || most_lines == 0) return lines;
  const std::size_t more = lines.size() - most_lines + 1;
  lines.resize(most_lines - 1);
  lines.push_back("... " + std::to_string(more) + " more lines");
  return lines;
}

}  // namespace drun
