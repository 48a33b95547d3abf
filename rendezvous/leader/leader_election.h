// edge. Decides whether this agent coordinates the job, by votes of the listed endpoints
// (election_driver.h) or by etcd (etcd_driver.h). Owned by Server and shared with its handlers.
// Makes no calls after stop. Use it on the io_context's thread only. An agent that does not know
// whether it leads does not lead.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/job/job_record.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous {

class LeaderElection {
 public:
  // Called from the event loop, or from within `leads`.
  class Listener {
   public:
    // This agent leads from now on; `before`: what is known about the rounds so far.
    virtual void on_lead(std::uint64_t term, const RoundRecord& before) = 0;
    // This agent must not act as the leader anymore.
    virtual void on_lead_lost(const std::string& reason) = 0;
    virtual void on_following(const Endpoint& leader, std::uint64_t term) = 0;
    virtual void on_vacant() = 0;
    // Every later leader will know that this number of rounds has begun.
    virtual void on_round_known(int rounds) = 0;
    // Why the leader is unknown; empty: it is known again.
    virtual void on_trouble(const std::string& /*reason*/) {}
    virtual void on_resigned() = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~LeaderElection() = default;
  virtual void start() = 0;
  virtual void stop() = 0;
  // on_round_known follows, unless the lead is lost.
  virtual void want_round(const RoundRecord& record) = 0;
  // Whether this agent leads now. First handles a lease that has expired.
  virtual bool leads() = 0;
  // While leading: whether another agent could lead if this one left, as far as is known here.
  virtual bool has_successor() const = 0;
  // Gives up the lead for good, so that the others need not wait for the end of the lease.
  // on_resigned follows once they know or cannot be reached.
  virtual void resign() = 0;
  // Members cannot reach the leader that was reported to them.
  virtual void doubt() {}
  // The job that this agent led is over. The cleanup may continue for a moment after stop.
  virtual void finish() {}
};

}  // namespace drun::rendezvous
