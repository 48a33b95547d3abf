// edge. Whether this agent coordinates the job, of several that may: decided by votes of the listed
// endpoints (election_driver.h), or by etcd (rendezvous/leader/etcd_driver.h).
//
// Owner:   Server; shared with its handlers. After stop it makes no calls.
// Thread:  the io_context's only.
// Errors:  none; an agent that does not know whether it leads does not lead.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/job/job_record.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous {

class LeaderElection {
 public:
  // Called from the loop, or from within `leads`.
  class Listener {
   public:
    // This agent leads from here on; `before`: what is known of the rounds so far.
    virtual void on_lead(std::uint64_t term, const RoundRecord& before) = 0;
    // It must not act as the leader any more.
    virtual void on_lead_lost(const std::string& reason) = 0;
    virtual void on_following(const Endpoint& leader, std::uint64_t term) = 0;
    virtual void on_vacant() = 0;
    // Every later leader will know that so many rounds have begun.
    virtual void on_round_known(int rounds) = 0;
    // Why the leader cannot be asked for; empty: it can again.
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
  // Whether this agent leads at this moment; what its clock says is acted upon first.
  virtual bool leads() = 0;
  // Leading: whether another would if this agent went, as far as it is known here.
  virtual bool has_successor() const = 0;
  // This agent leads no more, nor ever again: others need not wait for its lease to end.
  // on_resigned follows, once they have heard it or cannot.
  virtual void resign() = 0;
  // Members cannot reach the leader that was reported to them.
  virtual void doubt() {}
  // The job that this agent led is over. It may continue for a moment after stop.
  virtual void finish() {}
};

}  // namespace drun::rendezvous
