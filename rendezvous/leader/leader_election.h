// core. What an election reports, and its interface: by votes of the listed endpoints
// (election_driver.h) or by etcd (etcd_driver.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <variant>

#include "rendezvous/job/job_record.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous {

// --- News, which are actions of both state machines (election.h, etcd_election.h)

// This agent leads from now on; `before`: what is known about the rounds so far.
struct Leading {
  std::uint64_t term = 0;
  RoundRecord before{};
};
// This agent must not act as the leader anymore. Must be applied before the actions that follow it.
struct LeadLost {
  std::string reason{};
};
struct Following {
  Endpoint leader{};
  std::uint64_t term = 0;
};
struct Vacant {};
// Every later leader will know that this number of rounds has begun.
struct RoundKnown {
  int rounds = 0;
};
// Why the leader is unknown; empty: it is known again.
struct LeaderTrouble {
  std::string reason{};
};
// The others know that this agent has given up the lead, or cannot be reached.
struct Resigned {};
using ElectionNews =
    std::variant<Leading, LeadLost, Following, Vacant, RoundKnown, LeaderTrouble, Resigned>;

// --- Warnings

// Limits warnings about a seat that takes no part, which is asked again several times a second for
// as long as the job runs: each of the first texts once, and from then on one line after 30 s,
// after a further minute, and so on, at last every hour.
class RefusalLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Whether the warning may be written.
  bool allows(const std::string& text, Time now) {
    const bool is_new = texts_.size() < kMostTexts && texts_.insert(text).second;
    if (!is_new && now < next_) return false;
    if (!is_new) interval_ = std::min<std::chrono::seconds>(interval_ * 2, kLongest);
    next_ = now + interval_;
    return true;
  }

 private:
  static constexpr std::size_t kMostTexts = 8;
  static constexpr std::chrono::seconds kFirst{30};
  static constexpr std::chrono::hours kLongest{1};
  std::set<std::string> texts_;
  std::chrono::seconds interval_ = kFirst;
  Time next_{};
};

// --- The interface
//
// Decides whether this agent coordinates the job. Owned by Server and shared with its handlers.
// Makes no calls after stop. An agent that does not know whether it leads does not lead.

class LeaderElection {
 public:
  class Listener {
   public:
    // Called from the event loop, or from within `leads`.
    virtual void on_news(const ElectionNews& news) = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~LeaderElection() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  // RoundKnown follows, unless the lead is lost.
  virtual void want_round(const RoundRecord& record) = 0;
  // Whether this agent leads now. First handles a lease that has expired.
  virtual bool leads() = 0;
  // While leading: whether another agent could lead if this one left, as far as is known here.
  virtual bool has_successor() const = 0;
  // Gives up the lead for good, so that the others need not wait for the end of the lease. Resigned
  // follows.
  virtual void resign() = 0;
  // Members cannot reach the leader that was reported to them.
  virtual void doubt() {}
  // The job that this agent led is over. The cleanup may continue for a moment after stop.
  virtual void finish() {}
};

}  // namespace drun::rendezvous
