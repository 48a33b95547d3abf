#include "rendezvous/net/pending_connections.h"

#include <utility>

namespace drun::rendezvous {

std::optional<PendingConnections::Id> PendingConnections::add(Id id, std::string origin, Time now) {
  std::optional<Id> evicted;
  if (max_count_ > 0 && connections_.size() >= max_count_) evicted = evict();
  std::set<Id>& ids = ids_by_origin_[origin];
  if (!ids.empty()) crowds_.erase(crowd_of(ids));
  ids.insert(id);
  crowds_.insert(crowd_of(ids));
  connections_.emplace(id, Connection{std::move(origin), now + timeout_});
  return evicted;
}

void PendingConnections::remove(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const auto of_origin = ids_by_origin_.find(found->second.origin);
  std::set<Id>& ids = of_origin->second;
  crowds_.erase(crowd_of(ids));
  ids.erase(id);
  if (ids.empty())
    ids_by_origin_.erase(of_origin);
  else
    crowds_.insert(crowd_of(ids));
  connections_.erase(found);
}

std::optional<PendingConnections::Id> PendingConnections::take_expired(Time now) {
  if (connections_.empty() || connections_.begin()->second.expiry > now) return std::nullopt;
  const Id id = connections_.begin()->first;
  remove(id);
  return id;
}

std::optional<PendingConnections::Id> PendingConnections::evict() {
  if (crowds_.empty()) return std::nullopt;
  const Id id = crowds_.begin()->oldest;
  remove(id);
  return id;
}

std::optional<PendingConnections::Time> PendingConnections::next_expiry() const {
  if (connections_.empty()) return std::nullopt;
  return connections_.begin()->second.expiry;
}

}  // namespace drun::rendezvous
