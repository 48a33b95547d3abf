// core. What the seats of a job say to each other about who leads (election.h).
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace drun::rendezvous {

enum class BallotKind {
  Look,     // would you vote for me? Nothing is promised.
  Claim,    // vote for me
  Lead,     // I lead: vote for me again
  Release,  // I do not lead, and give your vote back
};

// From one seat to another. Vote comes back for each.
struct Ballot {
  std::string run_id;
  std::string seats;  // the list of endpoints that the sender was given
  int seat = 0;       // the sender's
  std::uint64_t instance = 0;
  std::uint64_t number = 0;  // of this ballot, the sender's count
  BallotKind kind = BallotKind::Look;
  std::uint64_t term = 0;
  int rounds = 0;  // that have begun, or are about to
  bool operator==(const Ballot&) const = default;
};

struct Vote {
  std::uint64_t number = 0;  // of the ballot
  std::uint64_t instance = 0;
  bool is_granted = false;               // to a Look: would be
  bool is_fresh = false;                 // may have forgotten a vote it gave before it was started
  std::chrono::milliseconds free_in{0};  // until its vote is free again
  std::uint64_t term = 0;                // the highest it knows of
  int rounds = 0;                        // likewise
  bool operator==(const Vote&) const = default;
};

// The answer to a Hello at a seat that does not lead.
struct Follow {
  std::string host;  // who leads: its endpoint
  std::uint16_t port = 0;
  std::uint64_t term = 0;
  bool operator==(const Follow&) const = default;
};

}  // namespace drun::rendezvous
