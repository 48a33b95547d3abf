// core. Configuration, events and actions of the coordinator's state machine (round.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

struct RoundSpec {
  std::string run_id;
  std::uint64_t term = 0;  // of its election; 0 without an election
  int rounds = 0;          // started before this coordinator took over
  bool is_back = false;    // it also led the last round: its node was not lost
  int node_count = 1;      // the maximum if elastic
  std::optional<ElasticSpec> elastic{};
  int max_restarts = 0;
  RestartPolicy restart{};
  bool preflight = false;
  std::string endpoint;     // for messages
  std::string master_addr;  // for members that have no setting for it
  std::uint16_t master_port = 0;
  bool use_agent_store = true;
  // round_spec() (round_state.h) sets these two from JoinSpec, which has the defaults of the
  // options.
  std::chrono::milliseconds join_timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds heartbeat_timeout{std::chrono::seconds(15)};
  // See rendezvous/protocol/line_window.h; 0: nodes do not send their workers' lines.
  std::size_t line_window_bytes = 0;
  MakeStackAnswers make_stack_answers = nullptr;  // required to ask for stacks
};

using Time = std::chrono::steady_clock::time_point;
// Identifies a connection; never reused.
using Peer = std::uint64_t;

// A new connection and its first message. PendingConnections tracks connections without one.
struct PeerArrived {
  Peer peer = 0;
  std::string address;
  MemberMessage message;
};
// The same, if that is a Hello.
struct Newcomer {
  Peer peer = 0;
  Hello hello{};
  std::string address{};
};
struct PeerSaid {
  Peer peer = 0;
  MemberMessage message;
};
struct PeerLeft {
  Peer peer = 0;
  std::string reason;  // "its connection closed"
};
// The coordinator's own agent has its outcome and will not join, or is no longer a member.
struct CoordinatorEnded {};
// When the job must end, as far as this agent knows. Replaces the previous value.
struct JobDeadline {
  Time signal_at{};  // the workers get `signal`
  Time stop_at{};    // then the remaining workers are stopped as usual
  int signal = 0;
  std::string reason;  // "the time limit of Slurm job 7 ends at 14:00:00"
  bool operator==(const JobDeadline&) const = default;
};
struct DeadlineKnown {
  std::optional<JobDeadline> deadline{};
};
struct RoundTick {};
using RoundEvent =
    std::variant<PeerArrived, PeerSaid, PeerLeft, CoordinatorEnded, DeadlineKnown, RoundTick>;

struct SendTo {
  Peer peer = 0;
  CoordinatorMessage message;
};
// Sends the same message to several peers.
struct SendAll {
  std::vector<Peer> peers;
  CoordinatorMessage message;
};
// Sends one result to several requesters, each with its own number. It is encoded once and reused
// until `result` changes.
struct Requester {
  Peer peer = 0;
  std::uint64_t number = 0;  // that the peer chose
};
struct SendResult {
  std::vector<Requester> requesters;
  std::shared_ptr<const QueryResult> result;
};
// Closes the connection once all pending messages are sent. A later PeerLeft is ignored.
struct Drop {
  Peer peer = 0;
};
// Must be applied before the actions that follow it.
struct ClearStore {};
// The last action is one of these. RoundOver: no member is connected or expected. StepDown: the job
// continues under another coordinator.
struct RoundOver {};
struct StepDown {};
using RoundAction =
    std::variant<SendTo, SendAll, SendResult, Drop, ClearStore, LogLine, RoundOver, StepDown>;

}  // namespace drun::rendezvous
