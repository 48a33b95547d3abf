// core. What agents and the coordinator say to each other. How it looks in bytes, and the limits of
// every field: control_wire.h.
//
// Units:   durations are the sender's steady clock; an age says how long before sending it
//          happened, so that the receiver can order events without comparing clocks.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/evidence.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/job/world.h"

// core. What the seats of a job say to each other about who leads (election.h).
// Owner:   values; copy freely.   Thread: any.

namespace drun::rendezvous {

enum class BallotKind {
  Look,     // would you vote for me? Nothing is promised.
  Claim,    // vote for me
  Lead,     // I lead: vote for me again
  Release,  // I do not lead, and give your vote back
};

// From one seat to another. Vote comes back for each.
struct Ballot {
  std::string run_id;
  std::string seats;  // the list of endpoints that the sender was given
  int seat = 0;       // the sender's
  std::uint64_t instance = 0;
  std::uint64_t number = 0;  // of this ballot, the sender's count
  BallotKind kind = BallotKind::Look;
  std::uint64_t term = 0;
  int rounds = 0;  // that have begun, or are about to
  bool operator==(const Ballot&) const = default;
};

struct Vote {
  std::uint64_t number = 0;  // of the ballot
  std::uint64_t instance = 0;
  bool is_granted = false;               // to a Look: would be
  bool is_fresh = false;                 // may have forgotten a vote it gave before it was started
  std::chrono::milliseconds free_in{0};  // until its vote is free again
  std::uint64_t term = 0;                // the highest it knows of
  int rounds = 0;                        // likewise
  bool operator==(const Vote&) const = default;
};

// The answer to a Hello at a seat that does not lead.
struct Follow {
  std::string host;  // who leads: its endpoint
  std::uint16_t port = 0;
  std::uint64_t term = 0;
  bool operator==(const Follow&) const = default;
};

}  // namespace drun::rendezvous

// core. What agents and the coordinator say to each other about how nodes are (`drun status`). Part
// of control_message.h.
//
// Owner:   values; copy freely.   Thread: any.

namespace drun::rendezvous {

// From a member: `drun status` on this node: CensusTold comes back.
struct CensusAsked {
  std::uint64_t question = 0;
  bool operator==(const CensusAsked&) const = default;
};
// The answer to TellNode.
struct NodeTold {
  std::uint64_t census = 0;
  NodeSummary summary;
  bool operator==(const NodeTold&) const = default;
};

// From the coordinator: how are you? NodeTold comes back.
struct TellNode {
  std::uint64_t census = 0;
  bool operator==(const TellNode&) const = default;
};
struct CensusTold {
  std::uint64_t question = 0;
  Census census;
  bool operator==(const CensusTold&) const = default;
};

}  // namespace drun::rendezvous

namespace drun::rendezvous {

using Milliseconds = std::chrono::milliseconds;

// A member's first words.
struct Hello {
  std::string run_id;
  std::optional<int> node_rank;  // absent: the coordinator's choice, in an elastic world
  int node_count = 1;            // the most, in an elastic world
  int local_world_size = 1;
  std::string role;
  std::string host;
  int pid = 0;
  std::uint64_t instance = 0;  // random; tells a member that comes back from a second one
  bool is_probe = false;       // asks for objections only (coordinator_probe.h): Refused comes back
  int least_node_count = 1;    // this and the next two: elastic worlds
  int slot = 0;                // tells agents of one host apart
  bool is_host = false;        // the coordinator's own agent
  // Of its host's interfaces, numeric; only with a secret: where its workers may come from.
  std::vector<std::string> addresses{};
  std::optional<Past> past{};      // it was in a world before
  std::uint64_t lost_term = 0;     // who led then is lost to it: it waits for a later one
  bool gathers = false;            // its workers' lines are to go to the coordinator (Lines)
  std::vector<RoleShare> roles{};  // several programs: its workers' roles, instead of `role`
  bool operator==(const Hello&) const = default;
};
// A worker failed: at once and brief, without tail and traceback.
struct Failed {
  int round = 0;
  AgedFailure first;
  bool operator==(const Failed&) const = default;
};
// All workers of this node returned 0.
struct AllReturned {
  int round = 0;
  bool operator==(const AllReturned&) const = default;
};
// All workers of this node are gone; what failed, in full.
struct Stopped {
  int round = 0;
  std::vector<AgedFailure> failures{};
  std::size_t left_out = 0;  // failures beyond what a message carries
  // Why this node cannot run another round, such as a process that SIGKILL does not end. Empty: it
  // can.
  std::string unusable{};
  WorkProgress progress{};  // of the round
  bool operator==(const Stopped&) const = default;
};
// Somebody sent a termination signal to this agent.
struct Signalled {
  int signal = 0;
  bool operator==(const Signalled&) const = default;
};
struct Ping {
  bool operator==(const Ping&) const = default;
};
// `drun stacks` on this node: StacksTold comes back.
struct StacksAsked {
  std::uint64_t question = 0;
  bool operator==(const StacksAsked&) const = default;
};
// The answer to TellStacks.
struct EvidenceGiven {
  std::uint64_t look = 0;
  Evidence evidence;
  bool operator==(const EvidenceGiven&) const = default;
};
// Workers of one node that are silent in the same way.
struct SuspectGroup {
  RankRanges ranks{};       // normalised
  std::vector<int> pids{};  // in order of rank; may be fewer than ranks, then the rest is unknown
  Failure first{};          // of the lowest rank: brief, with status Hung; its words hold for all
  bool operator==(const SuspectGroup&) const = default;
};
// Workers of this node show no sign of life (rendezvous/coordinator/silent_ranks.h).
struct HangSuspected {
  int round = 0;
  Milliseconds settle{0};  // others of the same hang are noticed within it
  std::vector<SuspectGroup> groups{};
  bool operator==(const HangSuspected&) const = default;
};
// What a worker of this node has written: whole lines, but for a progress bar that is drawn over
// and for the very end. Only as much as rendezvous/protocol/line_window.h allows.
struct Lines {
  int round = 0;
  int local_rank = 0;
  bool is_stderr = false;
  bool is_shown = true;      // on the console
  bool is_labelled = false;  // ... behind a label
  bool is_kept = false;      // in the rank's file
  bool goes_on = false;      // a long line, whose rest is the next message of that stream
  bool is_end = false;       // of the stream
  WallTime time{};           // when it was read, by the node's clock
  std::string text{};        // any bytes
  bool operator==(const Lines&) const = default;
};
// A fault of --inject, before it is injected. From the node that injects it, and from the
// coordinator to all: that node goes on once it has come back.
struct FaultInjected {
  InjectedFault fault;  // without `followed`
  bool operator==(const FaultInjected&) const = default;
};
// The answer to LivenessCheck.
struct LivenessReply {
  std::uint64_t check = 0;
  bool operator==(const LivenessReply&) const = default;
};
using MemberMessage =
    std::variant<Hello, Failed, AllReturned, Stopped, Signalled, Ping, StacksAsked, EvidenceGiven,
                 HangSuspected, Ballot, Lines, CensusAsked, NodeTold, LivenessReply, FaultInjected>;

// The answer to a Hello that was accepted.
struct Welcome {
  Milliseconds heartbeat_timeout{0};  // the coordinator's: who is silent for longer is lost
  std::uint64_t term = 0;             // of its election; 0: it was not elected
  std::size_t line_window_bytes = 0;  // for Lines; 0: the coordinator takes none
  bool operator==(const Welcome&) const = default;
};
struct NodeName {
  int node_rank = 0;
  std::string host;
  bool operator==(const NodeName&) const = default;
};
// Who has joined so far: every 10 s while the world is not complete. The lists hold the first few.
struct Waiting {
  int node_count = 0;
  int joined_count = 0;
  std::vector<NodeName> joined{};
  std::vector<int> missing{};  // fixed worlds
  // Elastic worlds: node ranks mean nothing yet, and time is the coordinator's to keep.
  int least_node_count = 0;  // 0: a fixed world
  bool is_spare = false;     // a world runs without this node
  Milliseconds left{0};      // until the world begins without more nodes, or is given up
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
// Before a stop: the workers get this signal, and `time` to save their state and exit.
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
// What do your workers do? EvidenceGiven comes back.
struct TellStacks {
  std::uint64_t look = 0;
  bool operator==(const TellStacks&) const = default;
};
struct StacksTold {
  std::uint64_t question = 0;
  Evidence evidence;
  bool operator==(const StacksTold&) const = default;
};
// Why the round is being stopped, for everybody's console; Stop follows.
struct HangFound {
  int round = 0;
  std::string cause;
  Evidence evidence;
  bool operator==(const HangFound&) const = default;
};
// The next world does without that node, for everybody's console; it gets a Finish of its own.
struct NodeLeftOut {
  LeftOut node;
  bool operator==(const NodeLeftOut&) const = default;
};
// So many bytes of Lines have been passed on, and may be sent again.
struct LinesTaken {
  std::size_t bytes = 0;
  bool operator==(const LinesTaken&) const = default;
};
// What the next coordinator, of several that may be one, is to know of these agents and of the
// restarts used up: a member tells it (Past). To all when it changes, and all records to who joins.
struct Remember {
  std::vector<NodeRecord> records{};
  int restarts = 0;  // at least
  bool operator==(const Remember&) const = default;
};
// Another agent claims this member's identity (rendezvous/coordinator/identity_contests.h):
// LivenessReply comes back at once.
struct LivenessCheck {
  std::uint64_t check = 0;
  bool operator==(const LivenessCheck&) const = default;
};
using CoordinatorMessage =
    std::variant<Welcome, Waiting, Refused, WorldReady, Stop, Finish, Pong, TellStacks, StacksTold,
                 HangFound, NodeLeftOut, Vote, Follow, LinesTaken, TellNode, CensusTold, Remember,
                 LivenessCheck, FaultInjected>;

}  // namespace drun::rendezvous
