#include "rendezvous/ranks/silent_ranks.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {
namespace {

const std::string& words_of(const Failure& failure) { return std::get<Hung>(failure.status).how; }

// A pid that was not reported is 0.
int pid_at(const SuspectGroup& group, std::size_t index) {
  return index < group.pids.size() ? group.pids[index] : 0;
}

// The index of `rank` among the ranks of the group; nullopt if it is not in the group.
std::optional<std::size_t> index_of(const SuspectGroup& group, int rank) {
  std::size_t before = 0;
  for (const RankRange& range : group.ranks) {
    if (rank < range.first) break;
    if (rank <= range.last) return before + static_cast<std::size_t>(rank - range.first);
    before += count_of({range});
  }
  return std::nullopt;
}

bool is_honest(const Suspects::Node& node, const SuspectGroup& group) {
  if (group.ranks.empty() || !std::holds_alternative<Hung>(group.first.status)) return false;
  RankRanges ordered = group.ranks;
  normalize(ordered);
  return ordered == group.ranks && group.pids.size() <= count_of(ordered) &&
         ordered.front().first >= node.base_rank &&
         ordered.back().last - node.base_rank < node.workers;
}

// The part of `group` that contains `ranks`.
SuspectGroup part_of(const SuspectGroup& group, const RankRanges& ranks) {
  SuspectGroup part{.ranks = ranks, .first = group.first};
  auto wanted = ranks.begin();
  std::size_t index = 0;
  for (const RankRange& range : group.ranks) {
    for (int rank = range.first; rank <= range.last && index < group.pids.size(); ++rank, ++index) {
      while (wanted != ranks.end() && wanted->last < rank) ++wanted;
      if (wanted == ranks.end()) return part;
      if (wanted->first <= rank) part.pids.push_back(group.pids[index]);
    }
  }
  return part;
}

struct RankPid {
  int rank = 0;
  int pid = 0;
};

std::vector<RankPid> expanded(const SuspectGroup& group) {
  std::vector<RankPid> all;
  for (const RankRange& range : group.ranks) {
    for (int rank = range.first; rank <= range.last; ++rank)
      all.push_back({rank, pid_at(group, all.size())});
  }
  return all;
}

// Adds the ranks of `group` to `into`, which keeps its text.
void join(SuspectGroup& into, const SuspectGroup& group) {
  const std::vector<RankPid> old = expanded(into);
  const std::vector<RankPid> added = expanded(group);
  std::vector<RankPid> all;
  std::merge(old.begin(), old.end(), added.begin(), added.end(), std::back_inserter(all),
             [](const RankPid& one, const RankPid& other) { return one.rank < other.rank; });
  into.pids.clear();
  for (const RankPid& each : all) into.pids.push_back(each.pid);
  into.ranks.insert(into.ranks.end(), group.ranks.begin(), group.ranks.end());
  normalize(into.ranks);
}

}  // namespace

std::vector<std::vector<SuspectGroup>> suspect_messages(std::vector<Failure> suspects) {
  std::erase_if(suspects, [](const Failure& suspect) {
    return !std::holds_alternative<Hung>(suspect.status);
  });
  std::sort(suspects.begin(), suspects.end(),
            [](const Failure& one, const Failure& other) { return one.rank < other.rank; });
  std::vector<std::vector<SuspectGroup>> messages;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> index;
  std::size_t ranges = 0;
  std::size_t pids = 0;
  std::size_t bytes = 0;
  for (const Failure& suspect : suspects) {
    const auto key = std::tuple(words_of(suspect), suspect.role, suspect.program);
    const bool is_new = !index.contains(key);
    const std::size_t size_bytes = is_new ? wire_size_bytes(suspect) : 0;
    const bool is_full = ranges == kMostSuspectRanges || pids == kMostSuspectPids ||
                         (is_new && (index.size() == kMostSuspectGroups ||
                                     (bytes > 0 && bytes + size_bytes > kFailuresBudgetBytes)));
    if (messages.empty() || is_full) {
      messages.emplace_back();
      index.clear();
      ranges = pids = bytes = 0;
    }
    const auto place = index.try_emplace(key, messages.back().size());
    if (place.second) {
      bytes += size_bytes > 0 ? size_bytes : wire_size_bytes(suspect);
      messages.back().push_back({.first = suspect});
    }
    SuspectGroup& group = messages.back()[place.first->second];
    if (!group.ranks.empty() && group.ranks.back().last + 1 == suspect.rank) {
      ++group.ranks.back().last;
    } else {
      group.ranks.push_back({suspect.rank, suspect.rank});
      ++ranges;
    }
    group.pids.push_back(suspect.pid);
    ++pids;
  }
  return messages;
}

bool Suspects::add(const Node& node, const std::vector<SuspectGroup>& groups) {
  const bool are_honest = std::all_of(
      groups.begin(), groups.end(), [&node](const auto& group) { return is_honest(node, group); });
  if (!are_honest) return false;
  for (const SuspectGroup& group : groups) {
    const auto known = by_base_rank_.find(node.base_rank);
    const RankRanges news =
        known == by_base_rank_.end() ? group.ranks : difference(group.ranks, known->second.ranks);
    if (news.empty()) continue;
    OfNode& self = by_base_rank_[node.base_rank];
    self.node_rank = node.node_rank;
    SuspectGroup part = part_of(group, news);
    self.pids += part.pids.size();
    if (self.pids > kMostPidsKept) part.pids.clear();
    if (self.groups.size() < kMostGroupsKept)
      self.groups.push_back(std::move(part));
    else
      join(self.groups.back(), part);
    self.ranks.insert(self.ranks.end(), news.begin(), news.end());
    normalize(self.ranks);
    if (self.ranks.size() > kMostRangesKept) return false;
  }
  return true;
}

RankRanges Suspects::ranks() const {
  RankRanges all;
  for (const auto& [base_rank, self] : by_base_rank_)
    all.insert(all.end(), self.ranks.begin(), self.ranks.end());
  normalize(all);
  return all;
}

Failure Suspects::failure_of(int rank) const {
  const auto after = by_base_rank_.upper_bound(rank);
  assert(after != by_base_rank_.begin());
  const auto& [base_rank, self] = *std::prev(after);
  for (const SuspectGroup& group : self.groups) {
    const auto index = index_of(group, rank);
    if (!index) continue;
    Failure failure = group.first;
    failure.rank = rank;
    failure.local_rank = rank - base_rank;
    failure.node_rank = self.node_rank;
    failure.pid = pid_at(group, *index);
    return failure;
  }
  assert(false);
  return {};
}

void Suspects::add_hung(const HangVerdict& verdict, const std::string& stacks, Moment moment,
                        FailureList& failures) const {
  const std::size_t count = count_of(verdict.culprits);
  std::size_t added = 0;
  for (const RankRange& range : verdict.culprits) {
    // All these failures have the same time, so the list drops the highest ranks. Once it has
    // dropped one, it would also drop all later ones.
    for (int rank = range.first; rank <= range.last && failures.left_out() == 0; ++rank) {
      Failure failure = failure_of(rank);
      failure.round = moment.round;
      auto& how = std::get<Hung>(failure.status).how;
      if (!verdict.words.empty()) how += ", " + verdict.words;
      if (verdict.are_all && count > 1) how += ", as all ranks do";
      if (added == 0) {
        if (count > 1) failure.message = ranks_text(verdict.culprits) + " hang alike";
        failure.traceback = stacks;
      }
      failures.add(std::move(failure), moment.time);
      ++added;
    }
  }
  failures.add_left_out(count - added);
}

}  // namespace drun::rendezvous
