// core. Newcomers that claim the identity (host name, address, slot) of a member of an elastic
// world whose connection still exists. Two agents can have one identity: containers with one host
// name behind one translated address. Or an agent was started again after a crash, and the
// coordinator has not noticed the end of its old connection yet.
//
//   claim by another    LivenessCheck
//   instance ---------> to the holder --+-- reply -------------------> claimants are refused
//                                       +-- its connection ends, or
//                                           no reply in time --------> the first one takes over
//
// Limits:  kMostContests holders and kMostClaimants for each; add() fails beyond that.
// Part of the coordinator's state (round.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

class IdentityContests {
 public:
  static constexpr Milliseconds kReplyTimeout{1000};
  // A timeout that is noticed later than this shows that the coordinator was held up: replies may
  // be waiting to be read, so the holder gets the same time again.
  static constexpr Milliseconds kReadingTime{250};
  static constexpr std::size_t kMostContests = 256;
  static constexpr std::size_t kMostClaimants = 8;

  struct Added {
    std::optional<std::uint64_t> check{};  // to send to the holder; absent: one is under way
    std::optional<Peer> replaced{};        // an older connection of the same claimant
  };

  // nullopt at a limit: the claimant is not kept.
  std::optional<Added> add(Peer holder, Newcomer claimant, Time now);
  // A claimant's connection ended. No-op if unknown.
  void remove_claimant(Peer peer);
  bool has_claimant(Peer peer) const { return holders_.contains(peer); }
  // The holder is alive. Empty unless it answers the check under way.
  std::vector<Newcomer> take_answered(Peer holder, std::uint64_t check);
  // The holder is gone.
  std::vector<Newcomer> take_of(Peer holder);
  // The claimants of one holder that did not reply in time. Call until it returns an empty list.
  std::vector<Newcomer> take_expired(Time now);
  std::vector<Newcomer> take_all();

  std::optional<Time> next_expiry() const;

 private:
  struct Contest {
    std::uint64_t check = 0;
    Time reply_by{};
    bool is_extended = false;
    std::vector<Newcomer> claimants{};
  };
  std::vector<Newcomer> take(std::map<Peer, Contest>::iterator contest);

  std::map<Peer, Contest> contests_;  // by holder; none without claimants
  std::map<Peer, Peer> holders_;      // of each claimant
  std::uint64_t last_check_ = 0;
};

}  // namespace drun::rendezvous
