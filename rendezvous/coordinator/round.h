// core. The coordinator's machine: which nodes form the world, when a round begins and ends, and
// how the job ends.
//
//             hello     all joined        a failure            all stopped         all have gone
//   Joining ---------+------------> Running --------> Stopping -----+--> Ending ---------> Over
//      |  ^          |                 |  ^  node lost,   |         |      ^    (or time is up)
//      |  +----------+                 |  |  signal       |         |      |
//      |   hello, left                 |  +--- Pausing <--+---------+      |
//      |                               |     a restart is left: next round |
//      +-- join timeout, signal        +-- all returned 0 -----------------+
//
//   With a preflight check, worlds of probes run first, until all probes of one have returned 0. It
//   is stopped for the program's first world. A probe that fails ends the job, or costs an elastic
//   one its node.
//
//   An elastic world has a line (elastic_world.h) where nodes wait for numbered seats. It differs
//   so:
//     hello         into the line, in every phase; a running world with room is stopped for it
//     hello         of a living member's identity: identity_contests.h
//     Joining       again after each Stopping and Pausing: the next world forms at once with enough
//                   nodes, else when they have joined; the first a last call after the least have
//     node lost     the round is stopped and another begun, which uses up no restart
//     a failure     a node that fails too often in a row (exclusion.h) gets its own outcome and is
//                   not let in again; not the coordinator's
//     unusable      a node that cannot run another round (Stopped) leaves for good, as above
//     Signalled     the same, while enough are left; its sender alone gets the outcome. The
//                   coordinator's own node goes so if there is a successor: then all are let go
//                   once they have stopped, and join that one. Else as below.
//     hello         of one that was in a world before: takeover.h
//     join timeout  since there were too few: NodeLost (NotRun before the first world); with the
//                   coordinator's own node lost at once
//
//   event \ state   Joining          Running            Stopping   Pausing   Ending     Over
//   PeerArrived     its Hello; dropped if it begins with something else                 drop
//   Hello           join or refuse   refuse             refuse     refuse    refuse     drop
//   Failed          drop             root cause, stop   noted, by  ignored   ignored    -
//                                                       moment
//   AllReturned     drop             noted; all: end    noted      ignored   ignored    -
//   Stopped         drop             as Failed          noted;     ignored   ignored    -
//                                                       all: next
//   Signalled       end              stop, then end     no restart end       ignored    -
//   HangSuspected   drop             a look, then maybe ignored    ignored   ignored    -
//                                    a failure, stop
//   StacksRequest     "no workers"     a look (node_queries.h) a look     as Joining ...       -
//   CensusRequest     a census (node_queries.h), in every phase
//   LogRequest        "no workers"     a lookup (node_queries.h)             "no workers"
//   PeerLeft        may rejoin       stop, then end     no restart end       goodbye    -
//   silent too long as PeerLeft      as PeerLeft        as PeerLeft   ...    as PeerLeft
//
//   "drop" is for what cannot come from an honest peer: its connection is closed, with a log line;
//   late words of an old round are ignored.
//
// Ranks:   contiguous by node rank; role ranks likewise, per role. Any number of workers a node.
// Cause:   the first Failed that arrives stops the round. Within that stop every failure's moment
//          is the coordinator's clock less the age its node gave; the earliest is the root cause,
//          so a node that was slow to tell is not taken for a victim. Ages reach back to the
//          round's start at most.
// Unusable: where a process survives SIGKILL no other round begins. In a fixed world the job ends
//          (NodeLost), if it would have gone on; likewise if it is the coordinator's own node.
// Restart: counted here, once for the job, after a pause if one is asked for (restart_policy.h); a
//          lost node or a signal ends the job instead. What stopped the round first counts.
// Cost:    O(1) an event, O(nodes) a transition or sweep; a node's messages are O(1) bytes.
// Units:   `now` is the steady clock of one turn.
// Owner:   a value, driven by server.cc (and tests/sim).   Thread: any, one at a time.
// Errors:  none; a broken peer is an event.  Never throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/identity_contests.h"
#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/exclusion.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/protocol/failure_list.h"

namespace drun::rendezvous {

enum class RoundPhase { Joining, Running, Stopping, Pausing, Ending, Over };

struct RoundNode {
  enum class Presence { Absent, Present, Lost };
  Presence presence = Presence::Absent;
  bool is_done = false;  // Running: all returned 0; Stopping: all stopped
  bool has_returned = false;
  std::string unusable{};  // Stopping: why it cannot run another round; empty: it can
  Peer peer = 0;
  Time heard;
  Hello hello;
  int base_rank = 0;                   // once the world is complete, like the next
  std::vector<int> role_base_ranks{};  // of each of its roles
  // Elastic worlds.
  AgentId id{};
  Time since{};  // its hello
  std::uint64_t arrival = 0;
  std::optional<int> leave_signal{};  // it goes, and the others stay
  std::optional<NodeTimes> times{};   // the last that it sent,
  Time times_at{};                    // and when
};

// Accepted, and not in a world: the line of an elastic one.
struct Candidate {
  AgentId id;
  Hello hello;
  Time heard;
  Time since;
  std::uint64_t arrival = 0;
  bool stays = false;  // it was in the world before
};
struct KnownAgent {
  std::optional<Peer> peer{};  // while it is here
  std::optional<int> rank{};   // in the last world
  int losses = 0;
};

// Beyond those a member floods: no --inject has as many.
inline constexpr int kMostFaultsTold = 65536;

struct RoundState {
  RoundSpec spec;
  RoundPhase phase = RoundPhase::Joining;
  std::vector<RoundNode> nodes;           // by node rank; of elastic worlds: of the last one
  std::unordered_map<Peer, int> node_of;  // accepted members, with a seat
  int present_count = 0;
  int pending_count = 0;  // present nodes with is_done == false, while Running or Stopping
  int round = 0;          // worlds before the last one
  int next_round = 0;
  bool has_begun = false;  // a world, under this coordinator
  int world_size = 0;
  std::map<std::string, int> role_sizes;
  Time opened;  // Joining: its begin
  std::optional<Time> first_world;
  Time round_began;
  int faults_told = 0;           // messages FaultInjected, of all rounds
  FailureList failures;          // of this round
  std::optional<Ending> ending;  // decided; absent while Stopping: by `failures`, or a restart
  bool is_failure = false;       // Stopping: a failure stopped it, which costs a restart
  bool is_checked = false;       // no preflight is due (any more)
  std::vector<Time> restarts;    // when
  std::size_t restarts_at_progress = 0;       // how many there were at the last progress
  bool made_progress = false;                 // this round
  std::optional<std::uint64_t> highest_step;  // that a progress file has shown, in any round
  FailureStreak streak;                       // start-up failures in a row, up to the last round's
  Time resume_at;                             // Pausing
  std::optional<JobDeadline> deadline;        // absent: none, or the workers have had its signal
  Time next_sweep;
  Time next_roll_call;
  Time end_by;
  StackQuery looking;
  CensusTaking census;
  LogLookups log_lookups;
  std::optional<Failure> last_failure;    // brief; of a round before
  std::optional<Time> inherited_failure;  // its moment, if a coordinator before led that round
  // Elastic worlds.
  std::map<Peer, Candidate> line;
  std::map<AgentId, KnownAgent> known;
  std::uint64_t arrivals = 0;
  int line_workers = 0;
  std::optional<Time> last_call;      // Joining, with enough nodes: when the world begins
  std::optional<NodeLost> last_loss;  // why there may be too few
  Exclusions exclusions;
  IdentityContests contests;
  bool has_successor = false;       // an agent that would coordinate if this one went
  std::vector<NodeRecord> records;  // for the next coordinator, where there can be one
  std::vector<NodeRecord> untold;   // of these, changes that members have not been sent yet
  Time tell_from;                   // when they may be: round.cc
  std::optional<int> survivors;     // of a coordinator before (takeover.h)
};

RoundState open_round(RoundSpec spec, Time now);

std::vector<RoundAction> step(RoundState& state, const RoundEvent& event, Time now);

// The restarts that use up the budget: with --max-restarts=N/progress those since the last
// progress. A coordinator that takes over the job counts all of them.
std::span<const Time> restarts_of_budget(const RoundState& state);

// When it wants a RoundTick.
std::optional<Time> deadline(const RoundState& state);

}  // namespace drun::rendezvous
