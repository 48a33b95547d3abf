// core. The campaign: the state machine that decides, through etcd, whether this agent coordinates
// the job. See docs/internals/election.md.
//
//              etcd names a leader                 no leader is left
//   Vacant --------------------> Following --------------------------------> Vacant
//    |  ^                            ^
//    |  | the lead is lost           | another was faster
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
//   own key         deletes it: of   as in Vacant     Leading: an answer (its own)
//                   an earlier lead                   was lost
//   no such lease   -                -                new leases         lead lost; state's: new
//                                                                         one
//   no answer       asks again       asks again       asks again         asks again
//   watch: deleted  delay begins     Vacant           -                  -
//   watch: a leader Following        Following        Following          -
//   watch ended     looks, watches   looks, watches   looks, watches     -
//   tick            looks            looks            claims             renews; lead lost by time
//   LeaderDoubted   -                looks more often -                  -
//   RecordWanted    -                -                -                  stored, then RoundKnown
//   Resign          Closed           Closed           Closed             deletes its key, Closed
//   JobOver         Closed           Closed           Closed             deletes keys, Closed
//
// Load:    an agent that does not lead watches the leader's key. While etcd confirms the watch, the
//          agent looks only every 12 leases, to detect a dead watch; without a watch it looks every
//          quarter of a lease. When the key disappears, each agent waits for a random part of
//          `2 ms x agents` (at most a quarter of the lease) and looks again before it claims, so
//          that of 1,000 agents only a few ask for leases. An agent that is not elected revokes its
//          leases.
// Lease:   etcd keeps the leader's key for `lease` after the last renewal, by its clock. This agent
//          leads for 4/5 of that time by its own clock, counted from when it requested the renewal.
//          It therefore stops before etcd can accept another leader, unless one clock runs a fifth
//          faster than the other. It checks is_leading before each action, also after a suspension.
// Fencing: before a round begins, the leader stores what later leaders need. The transaction
//          compares the leader's key and the state with the last ones seen, so that a late write of
//          a former leader changes nothing.
// Terms:   one higher than the term in the state, and than all terms seen by this agent.
// Memory:  if etcd has lost data (its revision decreased), it may have lost a leader: no agent
//          claims for the time of a lease.
// Time:    `now` is read from LeaseClock (deadline_timer.h) and stays the same during one step.
// Errors:  of etcd are events. Driven by etcd_driver.cc and tests/sim.
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
#include "rendezvous/leader/leader_election.h"

namespace drun::rendezvous::etcd {

using Time = std::chrono::steady_clock::time_point;

struct CampaignSpec {
  Endpoint endpoint{};         // this agent's own: where others reach it
  std::uint64_t instance = 0;  // random
  std::chrono::seconds lease{5};
  std::chrono::seconds keep{600};  // how long the state outlives its writer
  bool stands = true;              // this agent may coordinate
  int endpoint_count = 1;          // etcd's
  int agents = 1;                  // number of agents that may claim; spreads the claims in time
  std::string place{};             // etcd's endpoints, for messages
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
// The leader wants to begin a round. Answered by RoundKnown, unless the lead is lost.
struct RecordWanted {
  RoundRecord record{};
};
// Members cannot reach the leader that was reported to them.
struct LeaderDoubted {};
// This agent leaves and gives up the lead for good; the job continues.
struct Resign {};
struct JobOver {};
struct CampaignTick {};
using CampaignEvent = std::variant<EtcdAnswered, EtcdFailed, WatchReported, WatchEnded,
                                   RecordWanted, LeaderDoubted, Resign, JobOver, CampaignTick>;

// Actions.
// Answered within the limit. Replaces an earlier request.
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
struct Closed {};  // the last action
using CampaignAction = std::variant<AskEtcd, WatchLeader, StopWatching, Leading, LeadLost,
                                    Following, Vacant, RoundKnown, LeaderTrouble, LogLine, Closed>;

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
    Time at{};  // when the last successful grant or renewal was requested
  };
  CampaignSpec spec;
  CampaignPhase phase = CampaignPhase::Vacant;
  std::uint64_t last_number = 0;
  std::optional<Asked> asked;
  Time retry_at;
  int failures = 0;        // in a row
  bool is_silent = false;  // etcd does not answer, and this was logged
  std::string trouble;
  Time next_complaint;
  // From etcd's answers.
  std::uint64_t term = 0;  // the highest seen
  Revision revision = 0;
  std::uint64_t reported_after = 0;  // the last call made before the watch's last report
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
  bool is_watch_wanted = false;  // requested and not ended
  bool is_watching = false;      // confirmed by etcd
  bool may_watch = false;        // a look has given the revision to watch from
  Time watch_began;
  Time watch_retry_at;
  int watch_failures = 0;  // in a row
  std::uint64_t random = 0;
  // As a candidate or leader.
  std::optional<Held> lead_lease;
  std::optional<Held> keep_lease;
  std::uint64_t own_term = 0;
  Revision led_since = 0;
  RoundRecord wanted;
  bool is_stored = false;  // `wanted` is stored
  Time next_renewal;
  Time next_keep;
};

CampaignState open_campaign(CampaignSpec spec, Time now);

std::vector<CampaignAction> step(CampaignState& state, const CampaignEvent& event, Time now);

// Whether this agent leads now. The caller checks it before each action as leader.
bool is_leading(const CampaignState& state, Time now);

// When the next CampaignTick is due.
std::optional<Time> deadline(const CampaignState& state);

}  // namespace drun::rendezvous::etcd
