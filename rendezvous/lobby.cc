#include "rendezvous/lobby.h"

namespace drun::rendezvous {

std::optional<Lobby::Guest> Lobby::arrive(Guest guest, std::string origin, Time now) {
  std::optional<Guest> evicted;
  if (most_ > 0 && guests_.size() >= most_) evicted = evict();
  std::set<Guest>& neighbours = of_origin_[origin];
  neighbours.insert(guest);
  count(origin, neighbours.size() - 1, neighbours.size());
  guests_.emplace(guest, Place{std::move(origin), now + patience_});
  return evicted;
}

void Lobby::leave(Guest guest) {
  const auto found = guests_.find(guest);
  if (found == guests_.end()) return;
  const auto neighbours = of_origin_.find(found->second.origin);
  neighbours->second.erase(guest);
  count(neighbours->first, neighbours->second.size() + 1, neighbours->second.size());
  if (neighbours->second.empty()) of_origin_.erase(neighbours);
  guests_.erase(found);
}

std::optional<Lobby::Guest> Lobby::overdue(Time now) {
  if (guests_.empty() || guests_.begin()->second.until > now) return std::nullopt;
  const Guest guest = guests_.begin()->first;
  leave(guest);
  return guest;
}

std::optional<Lobby::Guest> Lobby::evict() {
  if (counts_.empty()) return std::nullopt;
  const Guest guest = *of_origin_.at(counts_.rbegin()->second).begin();
  leave(guest);
  return guest;
}

std::optional<Lobby::Time> Lobby::deadline() const {
  return guests_.empty() ? std::nullopt : std::optional(guests_.begin()->second.until);
}

void Lobby::count(const std::string& origin, std::size_t before, std::size_t after) {
  if (before > 0) counts_.erase({before, origin});
  if (after > 0) counts_.emplace(after, origin);
}

}  // namespace drun::rendezvous
