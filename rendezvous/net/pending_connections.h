// core. Tracks connections that have not identified themselves yet (no valid first message so far),
// and limits how many there are and how long each may take.
//
// When the limit is reached, the origin (IPv4 address or IPv6 /64) with the most pending
// connections loses its oldest one. Among origins with equally many, the oldest connection goes, so
// that no address is at a disadvantage. A flood from one origin therefore evicts its own
// connections first, and a client that identifies itself promptly gets in.
//
// All operations are O(log n).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

namespace drun::rendezvous {

class PendingConnections {
 public:
  using Id = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;

  // No limit if max_count is 0.
  PendingConnections(std::size_t max_count, std::chrono::milliseconds timeout)
      : max_count_(max_count), timeout_(timeout) {}

  // Adds a connection; ids must increase. Returns the connection evicted to make room, already
  // removed; it is never the new one.
  std::optional<Id> add(Id id, std::string origin, Time now);

  // Removes a connection that identified itself or closed. No-op if unknown.
  void remove(Id id);

  // Removes and returns one connection that has exceeded the timeout. Call until it returns
  // nullopt.
  std::optional<Id> take_expired(Time now);

  // Removes and returns the connection that add() would evict at the limit.
  std::optional<Id> evict();

  bool contains(Id id) const { return connections_.contains(id); }
  std::size_t size() const { return connections_.size(); }

  // When the next connection expires.
  std::optional<Time> next_expiry() const;

 private:
  struct Connection {
    std::string origin;
    Time expiry;
  };
  // An origin in eviction order: the largest first, then the one with the oldest connection.
  struct OriginGroup {
    std::size_t count = 0;
    Id oldest = 0;
    bool operator<(const OriginGroup& other) const {
      return count != other.count ? count > other.count : oldest < other.oldest;
    }
  };

  static OriginGroup crowd_of(const std::set<Id>& ids) { return {ids.size(), *ids.begin()}; }

  std::size_t max_count_;
  std::chrono::milliseconds timeout_;
  std::map<Id, Connection> connections_;  // the oldest first
  std::unordered_map<std::string, std::set<Id>> ids_by_origin_;
  std::set<OriginGroup> crowds_;
};

}  // namespace drun::rendezvous
