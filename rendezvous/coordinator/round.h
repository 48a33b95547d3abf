// core. The coordinator's state machine: which nodes form the world, when a round begins and ends,
// and how the job ends.
//
//             hello     enough nodes       a failure            all stopped         all have left
//   Joining ---------+------------> Running --------> Stopping -----+--> Ending ---------> Over
//      |  ^          |                 |  ^  node lost,   |         |      ^    (or time is up)
//      |  +----------+                 |  |  signal       |         |      |
//      |   hello, left                 |  +--- Pausing <--+---------+      |
//      |                               |     a restart is left: next round |
//      +-- join timeout, signal        +-- all returned 0 -----------------+
//
//   Nodes that have joined wait in a line (node_line.h) until a world forms. The next world forms
//   at once after Stopping or Pausing if there are enough nodes; else the state is Joining again.
//
//   With a preflight check, worlds of probes run first, until all probes of one world have returned
//   0. That world is then stopped, and the program's first world begins. A failed probe removes its
//   node if enough others are left, and else ends the job.
//
//   event \ state   Joining          Running            Stopping   Pausing   Ending     Over
//   PeerArrived     handles its Hello; drop if the first message is not a Hello         drop
//   Hello           joins the line, or is refused (membership.h)             refuse     drop
//   Failed          drop             root cause, stop   recorded   ignored   ignored    -
//   AllReturned     drop             recorded; all: end recorded   ignored   ignored    -
//   Stopped         drop             as Failed          recorded;  ignored   ignored    -
//                                                       all: next
//   Signaled        as below         as below           as below   as below  ignored    -
//   HangSuspected   drop             query, then maybe  ignored    ignored   ignored    -
//                                    a failure, stop
//   Query           of the status: in every phase. Of stacks: in Running and Stopping. Of a log:
//                   likewise, and in Pausing. Otherwise it is answered with "no workers run".
//   SpeedReport     drop             judged (slow_ranks) ignored   ignored   ignored    -
//   PeerLeft        leaves the line  as below           as below   as below  expected   -
//   silent too long as PeerLeft, in every phase
//
//   drop           a correct peer cannot send this: closes its connection and logs the reason.
//                  A node of an earlier world may send it late: then it is ignored.
//   query          see node_queries.h
//   Messages of an earlier round are ignored.
//
// Rules:   fixed and elastic jobs run through the same states. The rules of the world (WorldRules)
//          are the whole difference:
//
//                  fixed                            elastic
//   nodes          N                                MIN to MAX
//   node ranks     the nodes' own; they identify    assigned (node_line.h); an agent is identified
//                  the nodes                        by host, address and slot, and a second one is
//                                                   checked (identity_contests.h)
//   first world    once all have joined             at once with MAX nodes, with fewer after the
//                                                   last call; after a takeover see takeover.h
//   newcomer       refused, as its rank is taken    waits in the line; a running world that has
//                                                   room for it is stopped
//   lost node      then end (NodeLost)              then the next world; uses up no restart. The
//                                                   coordinator's node: then end, or step down if
//                                                   another agent can lead
//   unusable node  ends the job (NodeLost) if it    is removed for good and gets its own outcome;
//                  would have continued             the coordinator's node ends the job
//   Signaled       then end (Interrupted)           only the sender leaves, and only it gets the
//                                                   outcome, while enough nodes are left. The
//                                                   coordinator's node can leave only if another
//                                                   agent can lead; then all members are
//                                                   disconnected. Else: then end
//   failed often   -                                with --exclude-after, removed for good (not the
//                                                   coordinator's node)
//   slow           -                                with --exclude-slow, a node that is slow or has
//                                                   a slow rank is removed for good: the round is
//                                                   stopped if a standby node can take its place,
//                                                   once in 10 minutes (not the coordinator's node)
//   join timeout   NotRun                           NotRun before the first world, else NodeLost;
//                                                   counted from when there were too few nodes
//
//   then           once all workers have stopped: stops the round if it is running
//   end            without a restart. In Joining and Pausing, no worker runs, and the job ends at
//                  once. If several of these happen, the one that stopped the round first decides.
//
// Ranks:   contiguous by node rank; role ranks likewise, per role. Nodes may have different numbers
//          of workers.
// Cause:   the first Failed that arrives stops the round. The time of each failure is the
//          coordinator's clock minus the age that its node reported, but not before the start of
//          the round. The earliest failure is the root cause, even if its node reported it late.
// Restart: the coordinator counts restarts, once for the job, and pauses before one if configured
//          (restart_policy.h).
// Unusable: a node on which a process survives SIGKILL. It runs no other round.
// Parts:   round_state.h (the state, the rules), membership.h (joining, losses), node_line.h (the
//          next nodes), round_lifecycle.h (begin, stop, end), node_queries.h, takeover.h.
// Cost:    O(1) per event, O(nodes log nodes) per transition or sweep; a node's messages are O(1)
//          bytes.
// Time:    `now` is read from the steady clock and stays the same during one step.
// Errors:  a misbehaving peer is an event. Driven by server/coordination.h and tests/sim.
#pragma once

#include <optional>
#include <vector>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/coordinator/round_state.h"

namespace drun::rendezvous {

// The limit of FaultInjected messages in a job; further ones are ignored.
inline constexpr int kMostFaultsTold = 65536;

[[nodiscard]] std::vector<RoundAction> step(RoundState& state, const RoundEvent& event, Time now);

// When the next RoundTick is due.
std::optional<Time> deadline(const RoundState& state);

}  // namespace drun::rendezvous
