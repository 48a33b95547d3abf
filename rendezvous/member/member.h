// core. The node's machine: reach the coordinator, join, hold through the rounds, notice its loss,
// end.
//
//   Resting <---------+----------------- closed -----------+----------+
//      | back-off      | failed                             |          |
//      v               |     connected            welcome   |   world  |
//   Dialing -----------+--------------> Greeting ---------> Joined ------> Running
//                                                                           |  ^  | all returned 0
//                                          world of the next round          |  |  v
//                       Stopped <--------- own workers are gone --- Stopping <-+- Done
//                          |  +--------------------------------------------^
//                          | signal                                 stop, own failure, signal
//                          v
//      finish, lost coordinator, refusal, timeout, signal: Ending (own workers still run), Ended
//
//   event \ state   Resting/Dialing  Greeting     Joined     Running   Done     Stopping  Stopped
//   connected       Greeting         -            -          -         -        -         -
//   closed          Resting          Resting *    Resting    lost      lost     lost      lost
//   Welcome         -                Joined       broken     broken    broken   broken    broken
//   Refused         -                end          end        broken    broken   broken    broken
//   WorldReady      -                broken       Running    broken    broken   broken    Running
//   Stop            -                broken       broken     Stopping  Stopping  -        -
//   Finish          -                broken       end        end       end      end       end
//   own failure     -                -            -          Stopping  -        -         -
//   own stopped     -                -            -          both      -        Stopped   -
//   signal          end              end          Leaving    Stopping  Stopping  sent     Leaving
//   own question    answered here *2 ...          ...        sent      sent     sent      sent
//   own suspicion   -                -            -          sent      -        -         -
//   silence         -                Resting *    Resting    lost      lost     lost      lost
//   *2 also in Leaving, Parting and Ending
//   * until join_timeout: an overloaded coordinator closes connections, too. Bytes that are not
//     drun's protocol (WrongPeer) end the member at once.
//   "broken": the coordinator broke the protocol; as if the connection had closed.
//   Elastic worlds: instead of "lost", Parting: own workers are stopped, then Resting as at the
//   start, until the coordinator refuses, or for its heartbeat timeout; lost then. Numbers are the
//   coordinator's, and Joined has no timeout.
//   Several endpoints (member.h): Greeting may end in Follow, then the one named is dialled;
//   what fails there is tried elsewhere, for join_timeout. A later leader named: as "lost".
//   Leaving: a signal was passed on, nothing runs here; waits for Finish and answers Stop.
//   Old rounds are ignored everywhere; Parting, Ending and Ended ignore all but "own stopped".
//
// Reach:    with reach_timeout, a member that has no connection by then ends.
// Back-off: at most 50 ms, doubled up to 1 s, each pause a random half to whole of that; until
//           join_timeout has passed since start.
// Silence:  after Welcome, nothing heard for the coordinator's heartbeat timeout, unless this
//           process itself was held up. Pings are due every quarter of it.
// Lost:     stop own workers, then NodeLost{is_coordinator}, or Interrupted if a signal was passed
//           on.
// Units:    `now` is the steady clock of one turn.
// Owner:    a value, driven by client.cc (and tests/sim).   Thread: any, one at a time.
// Errors:   none; they become the outcome.  Never throws.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/protocol/failure_list.h"

// core. The questions and answers between a member and its agent about the nodes (`drun status`).
// Part of the member's machine (member.h). Owner:   values; copy freely.   Thread: any.

namespace drun::rendezvous {

// Events.
// A program on this node asks for the job's status. The answer is CensusResult, unless the
// coordinator is lost meanwhile.
struct OwnCensusQuestion {
  std::uint64_t question = 0;
};
// The answer to SummarizeNode.
struct OwnSummary {
  std::uint64_t census = 0;
  NodeSummary summary;
};

// Actions.
struct SummarizeNode {
  std::uint64_t census = 0;
};
struct CensusResult {
  std::uint64_t question = 0;
  Census census;  // only a note: there is no coordinator to ask
};

}  // namespace drun::rendezvous

// core. The questions and answers between a member and its agent about the workers' stacks
// (`drun stacks`, --hang-timeout). Part of the member's machine (member.h).
// Owner:   values; copy freely.   Thread: any.

namespace drun::rendezvous {

// Events.
// A program on this node asks for the stacks of all workers. The answer is StacksResult, unless the
// coordinator is lost meanwhile.
struct OwnQuestion {
  std::uint64_t question = 0;
};
// The answer to CollectEvidence.
struct OwnEvidence {
  std::uint64_t look = 0;
  Evidence evidence;
};
// Brief failures with status Hung, of any number.
struct OwnSuspicion {
  int round = 0;
  Milliseconds settle{0};
  std::vector<Failure> suspects{};
};

// Actions.
struct CollectEvidence {
  std::uint64_t look = 0;
};
struct StacksResult {
  std::uint64_t question = 0;
  Evidence evidence;
};
struct ShowHang {
  HangFound found;
};

}  // namespace drun::rendezvous

// core. The questions and answers between a member and its agent about log files (`drun logs`).
// Part of the member's machine (member.h).   Owner: values; copy freely.   Thread: any.

namespace drun::rendezvous {

// Events.
// A program on this node asks for a part of a log file. The answer is LogResult, unless the
// coordinator is lost meanwhile.
struct OwnLogQuestion {
  std::uint64_t question = 0;
  LogQuery query;
};
// The answer to ReadLog.
struct OwnLogPart {
  std::uint64_t lookup = 0;
  LogPart part;
};

// Actions.
struct ReadLog {
  std::uint64_t lookup = 0;
  LogQuery query;
};
struct LogResult {
  std::uint64_t question = 0;
  LogPart part;
};

}  // namespace drun::rendezvous

// core. Finds the current coordinator of a job with several endpoints (docs/internals/election.md),
// and keeps the job state that a new coordinator needs. Part of the member's machine (member.h).
//
//   own seat, if it has one, else one seat after the other
//      | Follow                       | no leader yet: the seat answers when there is one
//      v                              v
//   dial who leads -- Welcome      after the patience: the next one
//
// Owner:   values; copy freely.   Thread: any.

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;

// An event: this agent's own seat has heard who leads.
struct LeaderNamed {
  Endpoint endpoint;
  std::uint64_t term = 0;
};

// An event: the leader is unknown because etcd cannot be reached. Empty: it can again.
struct LeaderUnknown {
  std::string reason;
};

struct LeaderSearch {
  std::size_t next = 0;      // in the list: whom to ask next
  bool was_sent_on = false;  // it dials whom a seat named
  std::uint64_t term = 0;    // of the leader that it has joined or was sent to
  std::uint64_t lost_term = 0;
  std::size_t wrong_answers = 0;  // in a row
};

// Of the rounds it has been in.
struct Memory {
  int rounds = 0;
  std::string coordinator;  // of the last one
  std::vector<Time> restarts;
  std::vector<NodeRecord> records;
};

void remember(Memory& memory, const World& world, std::string coordinator, Time now);
Past past_of(const Memory& memory, const World& world, Time first_world, Time now);

}  // namespace drun::rendezvous

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;

struct MemberSpec {
  JoinSpec join;
  std::string host;
  int pid = 0;
  std::uint64_t instance = 0;  // random; also the seed of the jitter
};

struct MemberStart {};
struct Connected {
  std::string address{};  // numeric
};
struct ConnectFailed {
  std::string reason;       // "connection refused (10.0.0.1), ..."
  bool is_refused = false;  // by every address: nothing listens there
};
// What answers is not a drun of this version.
struct WrongPeer {
  std::string reason;  // a verb first: "speaks another version ..."
  // It was at one of the addresses that the coordinator's host reported: not tried again.
  bool is_one_of_several = false;
};
// Another node is the coordinator, although this one is configured as it (coordinator_probe.h).
struct OtherCoordinator {
  Error error;
};
struct Heard {
  CoordinatorMessage message;
};
struct ConnectionLost {
  std::string reason;
  bool has_spoken = false;  // the peer had sent a drun preamble
};
struct OwnFailure {
  AgedFailure failure;
};
struct OwnSuccess {
  int round = 0;
};
struct OwnStopped {
  int round = 0;
  std::vector<AgedFailure> failures{};
  std::string unusable{};  // as in Stopped
  WorkProgress progress{};
};
struct OwnSignal {
  int signal = 0;
};
struct OwnFault {
  InjectedFault fault;
};
struct OwnTimes {
  NodeTimes times;
};
struct MemberTick {};
using MemberEvent =
    std::variant<MemberStart, Connected, ConnectFailed, WrongPeer, OtherCoordinator, LeaderNamed,
                 LeaderUnknown, Heard, ConnectionLost, OwnFailure, OwnSuccess, OwnStopped,
                 OwnSignal, OwnQuestion, OwnEvidence, OwnSuspicion, OwnCensusQuestion, OwnSummary,
                 OwnFault, OwnTimes, OwnLogQuestion, OwnLogPart, MemberTick>;

// Answered by Connected, ConnectFailed; later WrongPeer or ConnectionLost, unless Disconnect came.
struct Connect {};
struct SendToCoordinator {
  MemberMessage message;
};
// After what was said has gone out. Nothing is heard from that connection again.
struct Disconnect {};
// The program at that address is no coordinator; the other known addresses are tried first.
struct AvoidAddress {};
struct ShowLeftOut {
  LeftOut node;
};
struct ShowFault {
  InjectedFault fault;
};
struct StartWorkers {
  World world;
};
struct StopWorkers {
  int round = 0;
  std::optional<StopNotice> notice{};
};
// The last action of all.
struct End {
  Outcome outcome;
};
struct MemberLog {
  LogLevel level = LogLevel::Info;
  std::string text;
};
using MemberAction =
    std::variant<Connect, SendToCoordinator, Disconnect, AvoidAddress, StartWorkers, StopWorkers,
                 End, MemberLog, CollectEvidence, StacksResult, ShowHang, ShowLeftOut, ShowFault,
                 SummarizeNode, CensusResult, ReadLog, LogResult>;

enum class MemberPhase {
  Resting,
  Dialing,
  Greeting,
  Joined,
  Running,
  Done,
  Stopping,
  Stopped,
  Leaving,
  Parting,
  Ending,
  Ended
};

struct MemberState {
  MemberSpec spec;
  MemberPhase phase = MemberPhase::Resting;
  std::string endpoint;  // for messages
  Time started;
  Time retry_at;                 // Resting
  Time answer_by;                // Greeting; with several endpoints also Dialing
  std::optional<Time> leave_by;  // Leaving before any world
  Time next_report;
  Milliseconds back_off{0};                // the longest next pause
  std::minstd_rand jitter;                 // of pauses; seeded with the instance
  std::string last_trouble;                // why the coordinator cannot be reached
  bool has_reached = false;                // it has connected to what may be a coordinator,
  bool has_been_welcome = false;           // which was one, now or before
  std::string address;                     // to which it is connected, or was
  std::optional<std::string> lost_reason;  // Parting, and trying to join again
  std::optional<Time> rejoin_by;           // until then
  Milliseconds heartbeat_timeout{0};       // the coordinator's
  Time heard;
  Time next_ping;
  LeaderSearch seeking;      // with several endpoints
  std::string etcd_trouble;  // empty: none
  Memory memory;             // elastic worlds
  std::optional<Waiting> waiting;
  std::optional<World> world;
  std::optional<Time> first_world;
  FailureList own_failures;        // reported in this round
  std::optional<int> signal;       // passed on
  std::string unusable;            // why it cannot run another round; empty: it can
  std::optional<Outcome> outcome;  // Ending; absent: the coordinator was lost, by last_trouble
};

MemberState new_member(MemberSpec spec);

// The first message of each connection.
Hello hello_of(const MemberSpec& spec);

std::vector<MemberAction> step(MemberState& state, const MemberEvent& event, Time now);

// When it wants a MemberTick.
std::optional<Time> deadline(const MemberState& state);

}  // namespace drun::rendezvous

// core. The outcome of a job for a member that must determine it without a coordinator.
// Thread: any.

namespace drun::rendezvous {

// The outcome from what this node knows.
Outcome local_outcome(const MemberState& state, Ending ending, Time now);

// Where a coordinator is sought: all endpoints, if there are several.
std::string place_text(const MemberState& state);

// "waiting for the coordinator at 10.0.0.1:29400: it has not answered yet"
std::string waiting_for_text(const MemberState& state);

// This node's number; absent: it had none yet, in an elastic world.
std::optional<int> own_rank(const MemberState& state);

// The coordinator went away (or must be taken for gone).
Ending lost_ending(const MemberState& state, std::string_view reason);

// Unreachable: every address that was tried, and why it failed.
Error reach_timeout_error(const MemberState& state);

// Timeout: naming who is missing, or why the coordinator cannot be reached.
Error join_timeout_error(const MemberState& state);

// Refused: what answers is not a drun of this version.
Error wrong_peer_error(const MemberState& state, std::string_view reason);

}  // namespace drun::rendezvous
