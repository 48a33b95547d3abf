// core. A node's state machine as a member of a job. It connects to the coordinator, joins, takes
// part in the rounds, detects the loss of the coordinator, and ends with the outcome. MemberPhase
// describes the states.
//
//   Resting <---------+----------------- closed -----------+----------+
//      | back-off      | failed                             |          |
//      v               |     connected            welcome   |   world  |
//   Dialing -----------+--------------> Greeting ---------> Joined ------> Running
//                                                                           |  ^  | all returned 0
//                                          world of the next round          |  |  v
//                       Stopped <--------- own workers ended ------ Stopping <-+- Done
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
//   signal          end              Leaving      Leaving    Stopping  Stopping  sent     Leaving
//   own query       answered here +  likewise     likewise + sent      sent     sent      sent
//   own suspicion   -                -            -          sent      -        -         -
//   silence         -                Resting *    Resting    lost      lost     lost      lost
//   * until join_timeout, because an overloaded coordinator also closes connections. Bytes that are
//     not drun's protocol (WrongPeer) end the member at once.
//   + without asking the coordinator; also in Leaving, Parting and Ending. In Joined, queries of
//     the job's status are sent.
//
//   broken: the coordinator broke the protocol; handled as "closed". lost: stops own workers, then
//   ends with NodeLost{is_coordinator}, or with Interrupted if a signal was passed on. Messages of
//   earlier rounds are ignored in all states. Parting, Ending and Ended ignore everything except
//   "own stopped".
//
//   Elastic jobs: instead of "lost", the member enters Parting, then reconnects from Resting. It is
//   lost if the coordinator refuses it or cannot be reached within the coordinator's heartbeat
//   timeout (join_timeout with several endpoints). The coordinator assigns the node rank, and
//   Joined has no timeout.
//
//   Several endpoints: in Greeting, a signal ends the member. A seat may answer with Follow there,
//   and the member connects to the leader that it names. If that fails, it asks the other seats,
//   for join_timeout. If a later leader is named to a joined member, its coordinator is lost.
//
// Reach:    with reach_timeout, a member that has no connection by then ends.
// Back-off: 50 ms at first, doubled up to 1 s; each pause is a random time between half of that and
//           all of it. Ends when join_timeout has passed since the start.
// Silence:  after Welcome, no message for the coordinator's heartbeat timeout, unless this process
//           itself was delayed. Pings are due every quarter of that time.
// Time:     `now` is read from the steady clock and stays the same during one step.
// Errors:   they become the outcome. Driven by client.cc and tests/sim.
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
#include "rendezvous/job/job_record.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/ranks/failure_list.h"

namespace drun::rendezvous {

// --- Leader search: finds the coordinator of a job with several endpoints
// (docs/internals/election.md), and keeps the job state that a new coordinator needs
//
//   connect to the own seat, or without one to each seat in turn
//      | Follow                       | no leader yet: the seat answers when there is one
//      v                              v
//   connect to the leader          no answer in time: the next seat

using Time = std::chrono::steady_clock::time_point;

// Event: this agent's own seat has learned which agent leads.
struct LeaderNamed {
  Endpoint endpoint;
  std::uint64_t term = 0;
};

// Event: the leader is unknown because etcd cannot be reached. Empty: etcd can be reached again.
struct LeaderUnknown {
  std::string reason;
};

struct LeaderSearch {
  std::size_t next = 0;      // index of the seat to ask next
  bool was_sent_on = false;  // connects to the leader that a seat named
  std::uint64_t term = 0;    // of the leader that it has joined or connects to
  std::uint64_t lost_term = 0;
  std::size_t wrong_answers = 0;  // in a row
};

// Kept by the member of an elastic job for a later coordinator.
struct Memory {
  int rounds = 0;
  std::string coordinator;  // of the last one
  std::vector<Time> restarts;
  std::vector<NodeRecord> records;
  bool is_checked = false;  // as in Past
};

// --- Events, actions and state

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
// The peer is not a drun of this version.
struct WrongPeer {
  std::string reason;  // begins with a verb: "speaks another version ..."
  // It was at an address that the coordinator's host reported, which is not tried again.
  bool is_one_of_several = false;
};
// This node is configured as the coordinator, but another node already is (coordinator_probe.h).
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
// Brief failures with status Hung, of any number.
struct OwnSuspicion {
  int round = 0;
  Milliseconds settle{0};
  std::vector<Failure> suspects{};
};
struct OwnTimes {
  NodeTimes times;
};
struct OwnSpeed {
  int round = 0;
  NodeSpeed speed;
};
struct MemberTick {};
// Query: of a program on this node. Its QueryResult follows, unless the coordinator is lost
// meanwhile. NodeAnswer: to a NodeQuery.
using MemberEvent = std::variant<MemberStart, Connected, ConnectFailed, WrongPeer, OtherCoordinator,
                                 LeaderNamed, LeaderUnknown, Heard, ConnectionLost, OwnFailure,
                                 OwnSuccess, OwnStopped, OwnSignal, Query, NodeAnswer, OwnSuspicion,
                                 OwnFault, OwnTimes, OwnSpeed, MemberTick>;

// Answered by Connected or ConnectFailed; later WrongPeer or ConnectionLost may follow, unless
// Disconnect was returned.
struct Connect {};
struct SendToCoordinator {
  MemberMessage message;
};
// Disconnects after all messages are sent. No further event comes from that connection.
struct Disconnect {};
// The program at that address is not a coordinator; the other known addresses are tried first.
struct AvoidAddress {};
struct ShowHang {
  HangFound found;
};
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
// The last action.
struct End {
  Outcome outcome;
};
using MemberAction =
    std::variant<Connect, SendToCoordinator, Disconnect, AvoidAddress, StartWorkers, StopWorkers,
                 End, LogLine, NodeQuery, QueryResult, ShowHang, ShowLeftOut, ShowFault>;

enum class MemberPhase {
  Resting,   // not connected; waits before the next attempt
  Dialing,   // connecting
  Greeting,  // connected; has sent Hello and waits for Welcome
  Joined,    // accepted; waits for a world
  Running,   // own workers run
  Done,      // all own workers have returned 0; the round continues elsewhere
  Stopping,  // own workers are being stopped
  Stopped,   // no own worker is left; waits for the next world or the outcome
  Leaving,   // has passed on a signal, and no own worker runs; waits for Finish and answers Stop
  Parting,   // elastic jobs: the coordinator is lost; stops own workers, then reconnects
  Ending,    // the job has ended, but own workers still run
  Ended      // the outcome was returned
};

struct MemberState {
  MemberSpec spec;
  MemberPhase phase = MemberPhase::Resting;
  std::string endpoint;  // for messages
  Time started;
  Time retry_at;                           // Resting
  Time answer_by;                          // Greeting; with several endpoints also Dialing
  std::optional<Time> leave_by;            // Leaving before any world
  Time next_report;                        // about the current wait
  std::size_t report_count = 0;            // of that wait, up to the last pause
  Milliseconds back_off{0};                // the longest next pause
  std::minstd_rand jitter;                 // of pauses; seeded with the instance
  std::string last_trouble;                // why the coordinator cannot be reached
  bool has_reached = false;                // it has connected to a possible coordinator
  bool has_been_welcome = false;           // it has received a Welcome, now or before
  bool awaits_welcome = false;             // the current connection has had no Welcome yet
  std::string address;                     // of the current or last connection
  std::optional<std::string> lost_reason;  // set while Parting and rejoining
  std::optional<Time> rejoin_by;           // time limit for that
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

// When the next MemberTick is due.
std::optional<Time> deadline(const MemberState& state);

}  // namespace drun::rendezvous
