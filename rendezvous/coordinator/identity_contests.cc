#include "rendezvous/coordinator/identity_contests.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace drun::rendezvous {

std::optional<IdentityContests::Added> IdentityContests::add(Peer holder, Newcomer claimant,
                                                             Time now) {
  const auto found = contests_.find(holder);
  if (found == contests_.end()) {
    if (contests_.size() >= kMostContests) return std::nullopt;
    const std::uint64_t check = ++last_check_;
    holders_.emplace(claimant.peer, holder);
    Contest contest{.check = check, .reply_by = now + kReplyTimeout};
    contest.claimants.push_back(std::move(claimant));
    contests_.emplace(holder, std::move(contest));
    return Added{.check = check};
  }
  std::vector<Newcomer>& claimants = found->second.claimants;
  const auto same = std::find_if(claimants.begin(), claimants.end(), [&](const Newcomer& other) {
    return other.hello.instance == claimant.hello.instance;
  });
  if (same == claimants.end() && claimants.size() >= kMostClaimants) return std::nullopt;
  holders_.emplace(claimant.peer, holder);
  if (same == claimants.end()) {
    claimants.push_back(std::move(claimant));
    return Added{};
  }
  const Peer replaced = same->peer;
  holders_.erase(replaced);
  *same = std::move(claimant);
  return Added{.replaced = replaced};
}

void IdentityContests::remove_claimant(Peer peer) {
  const auto holder = holders_.find(peer);
  if (holder == holders_.end()) return;
  const auto contest = contests_.find(holder->second);
  std::erase_if(contest->second.claimants,
                [peer](const Newcomer& claimant) { return claimant.peer == peer; });
  if (contest->second.claimants.empty()) contests_.erase(contest);
  holders_.erase(holder);
}

std::vector<Newcomer> IdentityContests::take_answered(Peer holder, std::uint64_t check) {
  const auto contest = contests_.find(holder);
  if (contest == contests_.end() || contest->second.check != check) return {};
  return take(contest);
}

std::vector<Newcomer> IdentityContests::take_of(Peer holder) {
  const auto contest = contests_.find(holder);
  return contest == contests_.end() ? std::vector<Newcomer>() : take(contest);
}

std::vector<Newcomer> IdentityContests::take_expired(Time now) {
  for (auto contest = contests_.begin(); contest != contests_.end(); ++contest) {
    Contest& each = contest->second;
    if (now < each.reply_by) continue;
    const bool was_held_up = now - each.reply_by > kReadingTime;
    if (!was_held_up || std::exchange(each.is_extended, true)) return take(contest);
    each.reply_by = now + kReplyTimeout;
  }
  return {};
}

std::vector<Newcomer> IdentityContests::take_all() {
  std::vector<Newcomer> all;
  while (!contests_.empty()) {
    std::vector<Newcomer> claimants = take(contests_.begin());
    std::move(claimants.begin(), claimants.end(), std::back_inserter(all));
  }
  return all;
}

std::optional<Time> IdentityContests::next_expiry() const {
  std::optional<Time> earliest;
  for (const auto& [holder, contest] : contests_) {
    if (!earliest || contest.reply_by < *earliest) earliest = contest.reply_by;
  }
  return earliest;
}

std::vector<Newcomer> IdentityContests::take(std::map<Peer, Contest>::iterator contest) {
  std::vector<Newcomer> claimants = std::move(contest->second.claimants);
  for (const Newcomer& claimant : claimants) holders_.erase(claimant.peer);
  contests_.erase(contest);
  return claimants;
}

}  // namespace drun::rendezvous
