// core. The campaign: whether this agent coordinates the job, where etcd is asked; the page is
// docs/internals/election.md.
//
//              etcd names a leader                 none is named any more
//   Vacant --------------------> Following --------------------------------> Vacant
//    |  ^                            ^
//    |  | the lead is lost           | another was quicker
//    |  |                            |
//    |  +---- Leading <----------- Claiming
//    |                 both keys       ^
//    +---------------------------------+
//       no leader: a random delay, another look, two leases, then both keys in one transaction
//
//   event \ state   Vacant           Following        Claiming           Leading
//   no leader       Claiming, after  Vacant           claims again       lead lost
//                   a delay
//   another leads   Following        Following        Following          lead lost
//   own key         taken away, of   likewise         Leading: an answer (its own)
//                   a lead before                     was lost
//   no such lease   -                -                new leases         lead lost; state's: anew
//   no answer       asked again      asked again      asked again        asked again
//   watch: deleted  delay begins     Vacant           -                  -
//   watch: a leader Following        Following        Following          -
//   watch ended     looks, watches   looks, watches   looks, watches     -
//   tick            looks            looks            claims             renews; lead lost by time
//   LeaderDoubted   -                looks more often -                  -
//   RecordWanted    -                -                -                  stored, then RecordKept
//   Resign          Closed           Closed           Closed             its key taken away, Closed
//   JobOver         Closed           Closed           Closed             keys taken away, Closed
//
// Load:    while etcd confirms the watch of the leader's key, an agent that does not lead looks
// only
//          every 12 leases, to find out about a watch that is silently dead; without a watch it
//          looks every quarter of a lease. When the key disappears, each agent waits for a random
//          part of `2 ms x agents` (at most a quarter of the lease) and looks again before it
//          claims, so that of 1,000 agents only a few ask for leases. An agent that is not elected
//          revokes its leases.
// Lease:   etcd keeps the leader's key for `lease` after the last renewal, by its clock. This agent
//          leads for 4/5 of that by its own, from when it asked for that renewal; so it has stopped
//          before etcd can accept another leader, unless one clock runs a fifth faster than the
//          other. It checks is_leading before each action, also after it was stopped.
// Fencing: what a round has to leave to later leaders is stored before it begins, in a transaction
//          that compares the leader's key with that of this lead and the state with the last one
//          seen: a former leader changes nothing, however late its write arrives.
// Terms:   the state's and one more, or one more than ever heard of here.
// Memory:  an etcd that has lost data (its revision went back) may have lost a leader: no agent
//          claims for the time of a lease.
// Units:   `now` is the steady clock of one turn.
// Owner:   a value, driven by etcd_driver.cc (and tests/sim).   Thread: any, one at a time.
// Errors:  none; what etcd does wrong is an event.  Never throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/leader/etcd_calls.h"
#include "rendezvous/leader/etcd_record.h"

namespace drun::rendezvous::etcd {

using Time = std::chrono::steady_clock::time_point;

struct CampaignSpec {
  Endpoint endpoint{};         // this agent's own: where others reach it
  std::uint64_t instance = 0;  // random
  std::chrono::seconds lease{5};
  std::chrono::seconds keep{600};  // how long the state outlives its writer
  bool stands = true;              // it may coordinate
  int endpoint_count = 1;          // etcd's
  int agents = 1;                  // that may claim: how far claims are spread in time
  std::string place{};             // those, for messages
};

// Events. One of the first two answers each AskEtcd.
struct EtcdAnswered {
  std::uint64_t number = 0;
  Answer answer{};
};
struct EtcdFailed {
  std::uint64_t number = 0;
  Failed failed{};
};
// Of the watch with this number; messages of earlier ones are ignored.
struct WatchReported {
  std::uint64_t number = 0;
  WatchMessage message{};
};
struct WatchEnded {
  std::uint64_t number = 0;
  std::string reason{};
};
// The leader wants to begin a round. The answer is RecordKept, unless the lead is lost.
struct RecordWanted {
  RoundRecord record{};
};
// Members cannot reach the leader that was reported to them.
struct LeaderDoubted {};
// It has given up the lead for good: its agent leaves, and the job continues.
struct Resign {};
struct JobOver {};
struct CampaignTick {};
using CampaignEvent = std::variant<EtcdAnswered, EtcdFailed, WatchReported, WatchEnded,
                                   RecordWanted, LeaderDoubted, Resign, JobOver, CampaignTick>;

// Actions.
// Answered within the limit. One at a time: what was asked before is of no use any more.
struct AskEtcd {
  std::uint64_t number = 0;
  Call call{};
  std::chrono::milliseconds limit{0};
};
// Watch the leader's key for changes from this revision on. Replaces an earlier watch.
struct WatchLeader {
  std::uint64_t number = 0;
  Revision from = 0;
};
struct StopWatching {};
struct Leading {
  std::uint64_t term = 0;
  RoundRecord record{};  // of the rounds before
};
// Before anything that stands after it.
struct LeadLost {
  std::string reason{};
};
struct Following {
  Endpoint endpoint{};
  std::uint64_t term = 0;
};
struct Vacant {};
struct RecordKept {
  int rounds = 0;
};
// Why no leader is known; empty: one is known again.
struct Trouble {
  std::string reason{};
};
struct CampaignLog {
  LogLevel level = LogLevel::Info;
  std::string text{};
};
struct Closed {};  // the last action of all
using CampaignAction = std::variant<AskEtcd, WatchLeader, StopWatching, Leading, LeadLost,
                                    Following, Vacant, RecordKept, Trouble, CampaignLog, Closed>;

enum class CampaignPhase { Vacant, Following, Claiming, Leading, Over };

enum class Errand { Look, LeaseLead, LeaseKeep, RenewLead, RenewKeep, Claim, Store, Clear, Revoke };

struct CampaignState {
  struct Asked {
    std::uint64_t number = 0;
    Errand errand = Errand::Look;
    Time at{};
    RoundRecord record{};  // Store
  };
  struct Held {
    Lease lease = 0;
    Time at{};  // when it was asked for, or to be renewed, with success
  };
  CampaignSpec spec;
  CampaignPhase phase = CampaignPhase::Vacant;
  std::uint64_t last_number = 0;
  std::optional<Asked> asked;
  Time retry_at;
  int failures = 0;        // in a row
  bool is_silent = false;  // etcd, so that it was said
  std::string trouble;
  Time next_complaint;
  // What etcd has said.
  std::uint64_t term = 0;  // the highest heard of
  Revision revision = 0;
  std::uint64_t reported_after = 0;  // the last call that was asked before the watch's last report
  Revision state_changed = 0;
  RoundRecord record;  // the last one stored, by any leader
  std::optional<LeaderRecord> leader;
  std::vector<Lease> to_revoke;  // leases of lost claims and of earlier leads, with their keys
  Lease old_keep = 0;            // of an earlier lead: the state is under it until another leads
  Time next_look;
  Time doubt_until;
  Time claim_after;
  std::optional<Time> claim_at;  // no leader: when to look again, and then to claim
  // The watch of the leader's key.
  std::uint64_t last_watch = 0;
  bool is_watch_wanted = false;  // asked for, and not ended
  bool is_watching = false;      // confirmed by etcd
  bool may_watch = false;        // a look has given the revision to watch from
  Time watch_began;
  Time watch_retry_at;
  int watch_failures = 0;  // in a row
  std::uint64_t random = 0;
  // A candidate's, and a leader's.
  std::optional<Held> lead_lease;
  std::optional<Held> keep_lease;
  std::uint64_t own_term = 0;
  Revision led_since = 0;
  RoundRecord wanted;
  bool is_stored = false;  // the one wanted
  Time next_renewal;
  Time next_keep;
};

CampaignState open_campaign(CampaignSpec spec, Time now);

std::vector<CampaignAction> step(CampaignState& state, const CampaignEvent& event, Time now);

// Whether it leads at this moment. Checked before each action of a leader.
bool is_leading(const CampaignState& state, Time now);

// When it wants a CampaignTick.
std::optional<Time> deadline(const CampaignState& state);

}  // namespace drun::rendezvous::etcd
