// core. The coordinator's state machine: which nodes form the world, when a round begins and ends,
// and how the job ends.
//
//             hello     all joined        a failure            all stopped         all have left
//   Joining ---------+------------> Running --------> Stopping -----+--> Ending ---------> Over
//      |  ^          |                 |  ^  node lost,   |         |      ^    (or time is up)
//      |  +----------+                 |  |  signal       |         |      |
//      |   hello, left                 |  +--- Pausing <--+---------+      |
//      |                               |     a restart is left: next round |
//      +-- join timeout, signal        +-- all returned 0 -----------------+
//
//   With a preflight check, worlds of probes run first, until all probes of one world have returned
//   0. That world is then stopped, and the program's first world begins. A failed probe ends the
//   job. In an elastic job it removes the probe's node instead.
//
//   In an elastic job, nodes wait in a line (elastic_world.h) for a node rank. The differences:
//     hello         The node joins the line, in every phase. A running world that has room for the
//                   node is stopped.
//     hello with the identity of a connected member: see identity_contests.h
//     hello of a node that was in a world before: see takeover.h
//     Joining       Also follows each Stopping and Pausing. The next world forms at once if there
//                   are enough nodes, else when enough have joined. The first world waits for the
//                   last call after the minimum has joined.
//     node lost     The round is stopped and another one begins; this uses up no restart.
//     failure       A node that fails too often in a row (job_record.h) gets its own outcome and is
//                   not admitted again. This does not apply to the coordinator's node.
//     unusable      A node that cannot run another round (Stopped) is removed for good in the same
//                   way.
//     slow          With --exclude-slow, a node that is slow or has a slow rank is removed for good
//                   in the same way: the round is stopped for it if a standby node can take its
//                   place, at most once in 10 minutes. The coordinator's node is not removed.
//     Signaled     Only the sender leaves, and only it gets the outcome, while enough nodes are
//                   left. The coordinator's own node can leave only if there is a successor: once
//                   all workers have stopped, the coordinator disconnects all members, and they
//                   join the successor. In all other cases the job ends as in the table below.
//     join timeout  Counted from when there were too few nodes. The job ends with NodeLost (NotRun
//                   before the first world). The loss of the coordinator's node ends it at once.
//
//   event \ state   Joining          Running            Stopping   Pausing   Ending     Over
//   PeerArrived     handles its Hello; drop if the first message is not a Hello         drop
//   Hello           join or refuse   refuse             refuse     refuse    refuse     drop
//   Failed          drop             root cause, stop   recorded   ignored   ignored    -
//   AllReturned     drop             recorded; all: end recorded   ignored   ignored    -
//   Stopped         drop             as Failed          recorded;  ignored   ignored    -
//                                                       all: next
//   Signaled       end              stop, then end     then end   end       ignored    -
//   HangSuspected   drop             query, then maybe  ignored    ignored   ignored    -
//                                    a failure, stop
//   Query           of the status: in every phase. Of stacks: in Running and Stopping. Of a log:
//                   likewise, and in Pausing. Otherwise it is answered with "no workers run".
//   SpeedReport     drop             judged (slow_ranks) ignored    ignored   ignored    -
//   PeerLeft        may rejoin       stop, then end     then end   end       expected   -
//   silent too long as PeerLeft, in every phase
//
//   drop           a correct peer cannot send this: closes its connection and logs the reason
//   then end       the job ends once all workers have stopped, without a restart
//   query          see node_queries.h
//   Messages of an earlier round are ignored.
//
// Ranks:   contiguous by node rank; role ranks likewise, per role. Nodes may have different numbers
//          of workers.
// Cause:   the first Failed that arrives stops the round. The time of each failure is the
//          coordinator's clock minus the age that its node reported, but not before the start of
//          the round. The earliest failure is the root cause, even if its node reported it late.
// Unusable: a node on which a process survives SIGKILL runs no other round. A fixed-size job ends
//          (NodeLost) if it would have continued, and so does a job whose coordinator's own node is
//          unusable.
// Restart: the coordinator counts restarts, once for the job, and pauses before one if configured
//          (restart_policy.h). A lost node or a signal ends the job instead. If several of these
//          happen, the one that stopped the round first decides.
// Cost:    O(1) per event, O(nodes) per transition or sweep; a node's messages are O(1) bytes.
// Time:    `now` is read from the steady clock and stays the same during one step.
// Errors:  never throws; a misbehaving peer is an event. Driven by server.cc and tests/sim.
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
#include "rendezvous/coordinator/silent_ranks.h"
#include "rendezvous/coordinator/slow_ranks.h"
#include "rendezvous/job/job_record.h"
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
  std::string slow{};      // --exclude-slow: why a standby node replaces it; empty: none does
  Peer peer = 0;
  Time heard;
  Hello hello;
  int base_rank = 0;                   // once the world is complete, like the next
  std::vector<int> role_base_ranks{};  // of each of its roles
  // Elastic worlds only, up to leave_signal.
  AgentId id{};
  Time since{};  // when its Hello arrived
  std::uint64_t arrival = 0;
  std::optional<int> leave_signal{};  // set: only this node leaves the job
  std::optional<NodeTimes> times{};   // its last report
  Time times_at{};                    // when that arrived
};

// An agent in the line of an elastic job: accepted, but not in the running world.
struct Candidate {
  AgentId id;
  Hello hello;
  Time heard;
  Time since;
  std::uint64_t arrival = 0;
  bool stays = false;                // it was in the previous world
  std::optional<NodeTimes> times{};  // its last report
  Time times_at{};                   // when that arrived
};
struct KnownAgent {
  std::optional<Peer> peer{};  // while it is connected
  std::optional<int> rank{};   // in the last world
  int losses = 0;
};

// The limit of FaultInjected messages in a job; further ones are ignored.
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
  bool has_begun = false;  // this coordinator has started a world
  int world_size = 0;
  std::map<std::string, int> role_sizes;
  Time opened;  // when Joining began
  std::optional<Time> first_world;
  Time round_began;
  int faults_told = 0;           // messages FaultInjected, of all rounds
  FailureList failures;          // of this round
  std::optional<Ending> ending;  // decided; absent while Stopping: by `failures`, or a restart
  bool is_failure = false;       // Stopping: a failure stopped it, so the next round is a restart
  bool is_checked = false;       // no preflight is due (anymore)
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
  NodeQueries queries;
  Suspects suspects;  // of this round, not judged yet
  // When the query about the suspects begins: nodes detect the same hang at different times.
  std::optional<Time> look_at;
  std::optional<std::uint64_t> begun_by_all;  // of the last hang verdict of this round
  SlowRanks slow_ranks;
  std::optional<Time> slow_replaced_at;   // --exclude-slow: when the last node was
  std::optional<Failure> last_failure;    // brief; of a round before
  std::optional<Time> inherited_failure;  // its time, if an earlier coordinator led that round
  // Elastic worlds.
  std::map<Peer, Candidate> line;
  std::map<AgentId, KnownAgent> known;
  std::uint64_t arrivals = 0;
  int line_workers = 0;
  std::optional<Time> last_call;      // Joining, with enough nodes: when the world begins
  std::optional<NodeLost> last_loss;  // why there may be too few nodes
  Exclusions exclusions;
  IdentityContests contests;
  // Another agent can take over as coordinator if this one leaves. Set before each event.
  bool has_successor = false;
  std::vector<NodeRecord> records;  // for the next coordinator, if there can be one
  std::vector<NodeRecord> untold;   // changed records that are not sent to members yet
  Time tell_from;                   // the earliest time to send them
  std::optional<int> survivors;     // expected after a takeover (takeover.h)
};

RoundState open_round(RoundSpec spec, Time now);

[[nodiscard]] std::vector<RoundAction> step(RoundState& state, const RoundEvent& event, Time now);

// The restarts that use up the budget: with --max-restarts=N/progress those since the last
// progress. A coordinator that takes over the job counts all of them.
std::span<const Time> restarts_of_budget(const RoundState& state);

// When the next RoundTick is due.
std::optional<Time> deadline(const RoundState& state);

}  // namespace drun::rendezvous
