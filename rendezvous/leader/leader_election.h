// edge. Whether this agent coordinates the job, of several that may: decided by votes of the listed
// endpoints (election_driver.h), or by etcd (rendezvous/leader/etcd_driver.h).
//
// Owner:   Server; shared with its own handlers. After stop nobody is called.
// Thread:  the io_context's only.
// Errors:  none; who cannot tell has no lead.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/job/job_record.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous {

class Authority {
 public:
  // Called from the loop, or from within `leads`.
  class Listener {
   public:
    // This agent leads from here on; `before`: what is known of the rounds so far.
    virtual void on_lead(std::uint64_t term, const RoundRecord& before) = 0;
    // It must not do a leader's deed any more.
    virtual void on_lead_lost(const std::string& reason) = 0;
    virtual void on_following(const Endpoint& leader, std::uint64_t term) = 0;
    virtual void on_vacant() = 0;
    // Every later leader will know that so many rounds have begun.
    virtual void on_round_known(int rounds) = 0;
    // Why nobody can be asked who leads; empty: no more.
    virtual void on_trouble(const std::string& /*reason*/) {}
    virtual void on_resigned() = 0;

   protected:
    ~Listener() = default;
  };

  virtual ~Authority() = default;
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
  // Members cannot reach whom they were told of.
  virtual void doubt() {}
  // The job that this agent led is over. It may go on for a moment after stop.
  virtual void finish() {}
};

}  // namespace drun::rendezvous
