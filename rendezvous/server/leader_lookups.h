// core. Members that ask a seat for the leader. The answer is immediate if the seat knows a leader
// that the member has not lost. Otherwise the member waits until a leader is known or this seat
// leads. At most kMostLeaderLookups members wait; others are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

constexpr std::size_t kMostLeaderLookups = 8192;

class LeaderLookups {
 public:
  using Peer = std::uint64_t;
  struct Asking {
    Peer peer = 0;
    std::string address;
    Hello hello;
  };

  // Returns the answer if there is one. Otherwise the member waits, unless too many wait already.
  std::optional<Follow> ask(Asking asking) {
    if (leader_ && leader_->term > asking.hello.lost_term) return leader_;
    if (waiting_.size() < kMostLeaderLookups) waiting_.emplace(asking.peer, std::move(asking));
    return std::nullopt;
  }
  bool has(Peer peer) const { return waiting_.contains(peer); }
  void leave(Peer peer) { waiting_.erase(peer); }

  // The members that can be answered now; removes them.
  std::vector<Peer> know(Follow leader) {
    std::vector<Peer> told;
    for (const auto& [peer, asking] : waiting_) {
      if (leader.term > asking.hello.lost_term) told.push_back(peer);
    }
    for (const Peer peer : told) waiting_.erase(peer);
    leader_ = std::move(leader);
    return told;
  }
  void forget_leader() { leader_.reset(); }

  // This seat leads: removes and returns all waiting members, which become its own.
  std::vector<Asking> take_all() {
    std::vector<Asking> all;
    for (auto& [peer, asking] : waiting_) all.push_back(std::move(asking));
    waiting_.clear();
    return all;
  }

 private:
  std::optional<Follow> leader_;
  std::map<Peer, Asking> waiting_;
};

}  // namespace drun::rendezvous
