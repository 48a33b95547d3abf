// core. The messages between agents and the coordinator, and between the seats of an election.
// control_wire.h defines their encoding and the limits of every field.
//
// Durations are measured by the sender's steady clock. An age is the time from an event to the
// sending of the message, so that the receiver can order events without comparing clocks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/phase_times.h"
#include "rendezvous/job/rank_ranges.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/job/slow_rank.h"
#include "rendezvous/job/world.h"

namespace drun::rendezvous {

// --- Election: between the seats (election.h)

enum class BallotKind {
  Look,     // asks whether the seat would vote for the sender; not binding
  Claim,    // asks for a vote
  Lead,     // the sender leads and asks to renew the vote
  Release,  // the sender does not lead and returns the vote
};

// From one seat to another. Each is answered by a Vote.
struct Ballot {
  std::string run_id;
  std::string seats;  // the list of endpoints that the sender was given
  int seat = 0;       // the sender's
  std::uint64_t instance = 0;
  std::uint64_t number = 0;  // of this ballot, counted by the sender
  BallotKind kind = BallotKind::Look;
  std::uint64_t term = 0;
  int rounds = 0;  // started or about to start
  bool operator==(const Ballot&) const = default;
};

struct Vote {
  std::uint64_t number = 0;  // of the ballot
  std::uint64_t instance = 0;
  bool is_granted = false;               // for a Look: would be granted
  bool is_fresh = false;                 // just started: may have forgotten an earlier vote
  std::chrono::milliseconds free_in{0};  // until it can vote for another seat
  std::uint64_t term = 0;                // the highest seen
  int rounds = 0;                        // the highest count seen
  bool operator==(const Vote&) const = default;
};

// The answer to a Hello at a seat that does not lead.
struct Follow {
  std::string host;  // the leader's endpoint
  std::uint16_t port = 0;
  std::uint64_t term = 0;
  bool operator==(const Follow&) const = default;
};

// --- Queries: a member asks nodes through the coordinator (`drun status`, `stacks`, `logs`)
//
//   member  -- Query -->        coordinator  -- NodeQuery -->  nodes
//           <-- QueryResult --               <-- NodeAnswer --
//
// What questions and answers mean is up to the agents (agent/status, agent/stacks). The coordinator
// forwards the bytes; rendezvous/coordinator/node_queries.h has the limits of each kind.

enum class QueryKind : std::uint8_t {
  Status,  // asks all members. The result is a census (encode_census in control_wire.h)
  Stacks,  // asks all nodes of the world. The result is their answers, merged (stack_answers.h)
  Log,     // asks the node that has the log files of `rank`. The result is its answer
};

struct Query {
  std::uint64_t number = 0;  // that the member chose
  QueryKind kind = QueryKind::Status;
  int rank = 0;  // for Log
  std::string question{};
  bool operator==(const Query&) const = default;
};
struct NodeQuery {
  std::uint64_t number = 0;  // that the coordinator chose
  QueryKind kind = QueryKind::Status;
  std::string question{};
  bool operator==(const NodeQuery&) const = default;
};
struct NodeAnswer {
  std::uint64_t number = 0;
  std::string answer{};
  bool operator==(const NodeAnswer&) const = default;
};
struct QueryResult {
  std::uint64_t number = 0;
  std::string note{};  // why there is no answer; empty: there is one
  std::string answer{};
  bool operator==(const QueryResult&) const = default;
};

// --- From members to the coordinator

using Milliseconds = std::chrono::milliseconds;

// A member's first message.
struct Hello {
  std::string run_id;
  std::optional<int> node_rank;  // absent: assigned by the coordinator (elastic jobs)
  int node_count = 1;            // the maximum in an elastic job
  int local_world_size = 1;
  std::string role;
  std::string host;
  int pid = 0;
  std::uint64_t instance = 0;   // random; distinguishes a reconnected member from another one
  bool is_probe = false;        // only checks for objections (coordinator_probe.h); gets Refused
  int min_node_count = 1;       // this and the next two fields: elastic jobs only
  int slot = 0;                 // distinguishes agents of one host
  bool is_coordinator = false;  // the coordinator's own agent
  // Numeric addresses of its host's interfaces, from which its workers may connect to the store.
  // Sent only with a secret.
  std::vector<std::string> addresses{};
  std::optional<Past> past{};      // set if it was in an earlier world
  std::uint64_t lost_term = 0;     // it lost this term's leader and waits for a later one
  bool gathers = false;            // it sends its workers' output to the coordinator (Lines)
  std::vector<RoleShare> roles{};  // with several programs, its workers' roles; replaces `role`
  bool operator==(const Hello&) const = default;
};
// A worker failed. Sent at once, without the last lines of stderr and the traceback.
struct Failed {
  int round = 0;
  AgedFailure first;
  bool operator==(const Failed&) const = default;
};
// All workers of this node exited with 0.
struct AllReturned {
  int round = 0;
  bool operator==(const AllReturned&) const = default;
};
// All workers of this node have ended. Lists the failures in full.
struct Stopped {
  int round = 0;
  std::vector<AgedFailure> failures{};
  std::size_t left_out = 0;  // failures beyond what a message carries
  // Why this node cannot run another round, for example a process that SIGKILL does not end. Empty
  // if it can.
  std::string unusable{};
  WorkProgress progress{};  // of the round
  bool operator==(const Stopped&) const = default;
};
// This agent received a termination signal.
struct Signaled {
  int signal = 0;
  bool operator==(const Signaled&) const = default;
};
struct Ping {
  bool operator==(const Ping&) const = default;
};
// Workers of one node that are silent in the same way.
struct SuspectGroup {
  RankRanges ranks{};       // normalized
  std::vector<int> pids{};  // in order of rank; if there are fewer than ranks, the rest are unknown
  Failure first{};          // of the lowest rank, brief, with status Hung; its text applies to all
  bool operator==(const SuspectGroup&) const = default;
};
// Workers of this node show no activity (rendezvous/ranks/silent_ranks.h).
struct HangSuspected {
  int round = 0;
  Milliseconds settle{0};  // other workers of the same hang are detected within this time
  std::vector<SuspectGroup> groups{};
  bool operator==(const HangSuspected&) const = default;
};
// Output of a worker of this node. Consists of whole lines, except for a progress bar that is
// redrawn in place and for the end of the stream. Flow control: rendezvous/protocol/line_window.h.
struct Lines {
  int round = 0;
  int local_rank = 0;
  bool is_stderr = false;
  bool is_shown = true;     // on the console
  bool is_labeled = false;  // ... with a label
  bool is_kept = false;     // in the rank's file
  bool goes_on = false;     // a long line that continues in the stream's next message
  bool is_end = false;      // of the stream
  WallTime time{};          // when it was read, by the node's wall clock
  std::string text{};       // any bytes
  bool operator==(const Lines&) const = default;
};
// A fault of --inject, sent before it is injected: by the node that injects it, and then by the
// coordinator to all nodes. The node injects the fault when it receives the coordinator's copy.
struct FaultInjected {
  InjectedFault fault;  // without `followed`
  bool operator==(const FaultInjected&) const = default;
};
// How long this node has been in each phase. Sent before AllReturned, Stopped
// and the answer to a query of the status.
struct TimesReport {
  NodeTimes times;
  bool operator==(const TimesReport&) const = default;
};
// The answer to LivenessCheck.
struct LivenessReply {
  std::uint64_t check = 0;
  bool operator==(const LivenessReply&) const = default;
};
// How fast the node's workers are. Sent every 10 s while the round runs.
struct SpeedReport {
  int round = 0;
  NodeSpeed speed;
  bool operator==(const SpeedReport&) const = default;
};
// The index is the kind on the wire. After a change, raise kControlVersion (net/frame_reader.h).
using MemberMessage = std::variant<Hello, Failed, AllReturned, Stopped, Signaled, Ping, Query,
                                   NodeAnswer, HangSuspected, Ballot, Lines, LivenessReply,
                                   FaultInjected, TimesReport, SpeedReport>;

// --- From the coordinator to members

// The answer to a Hello that was accepted.
struct Welcome {
  Milliseconds heartbeat_timeout{0};  // the coordinator's, after which a silent member is lost
  std::uint64_t term = 0;             // of its election; 0 without an election
  std::size_t line_window_bytes = 0;  // for Lines; 0: the coordinator accepts none
  bool operator==(const Welcome&) const = default;
};
struct NodeName {
  int node_rank = 0;
  std::string host;
  bool operator==(const NodeName&) const = default;
};
// The nodes that have joined so far. Sent every 10 s until the world is complete. The lists contain
// only the first few nodes.
struct Waiting {
  int node_count = 0;
  int joined_count = 0;
  std::vector<NodeName> joined{};
  std::vector<int> missing{};  // fixed worlds
  // Elastic jobs: node ranks are not assigned yet, and the coordinator keeps the deadline.
  int min_node_count = 0;  // 0: a fixed world
  bool is_spare = false;   // the running world does not include this node
  // Until the world starts with the nodes that have joined, or the wait fails.
  Milliseconds left{0};
  bool operator==(const Waiting&) const = default;
};
struct Refused {
  Error error;
  bool operator==(const Refused&) const = default;
};
struct WorldReady {
  World world;
  bool operator==(const WorldReady&) const = default;
};
// Precedes a stop: the workers get this signal and then have `time` to save their state and exit.
struct StopNotice {
  int signal = 0;
  Milliseconds time{0};
  bool operator==(const StopNotice&) const = default;
};
struct Stop {
  int round = 0;
  std::string cause;  // one line, for the log
  std::optional<StopNotice> notice{};
  bool operator==(const Stop&) const = default;
};
struct Finish {
  Outcome outcome;
  bool operator==(const Finish&) const = default;
};
struct Pong {
  bool operator==(const Pong&) const = default;
};
// Why the round is being stopped, for the console of every node. Stop follows.
struct HangFound {
  int round = 0;
  std::string cause;
  std::string evidence;  // the merged answers to the query of stacks
  bool operator==(const HangFound&) const = default;
};
// The next world does not include this node; for the console of every other node. The node itself
// gets a Finish.
struct NodeLeftOut {
  LeftOut node;
  bool operator==(const NodeLeftOut&) const = default;
};
// `bytes` of Lines have been consumed, which opens the send window by that amount.
struct LinesTaken {
  std::size_t bytes = 0;
  bool operator==(const LinesTaken&) const = default;
};
// The state of these agents, and the restarts used so far, for a later coordinator; members report
// it in Past. Sent to all members when it changes. A new member gets all records.
struct Remember {
  std::vector<NodeRecord> records{};
  int restarts = 0;  // at least
  bool operator==(const Remember&) const = default;
};
// Another agent claims this member's identity (rendezvous/coordinator/identity_contests.h).
// Answered at once by LivenessReply.
struct LivenessCheck {
  std::uint64_t check = 0;
  bool operator==(const LivenessCheck&) const = default;
};
// A rank or node was found to be slow. Sent once, to the nodes of the world.
struct SlowFound {
  SlowRank slow;
  bool operator==(const SlowFound&) const = default;
};
// The index is the kind on the wire. After a change, raise kControlVersion (net/frame_reader.h).
using CoordinatorMessage =
    std::variant<Welcome, Waiting, Refused, WorldReady, Stop, Finish, Pong, NodeQuery, QueryResult,
                 HangFound, NodeLeftOut, Vote, Follow, LinesTaken, Remember, LivenessCheck,
                 FaultInjected, SlowFound>;

}  // namespace drun::rendezvous
