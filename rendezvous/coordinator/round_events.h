// core. What the coordinator's machine (round.h) hears, and what it wants done.
// Owner:   values; copy freely.   Thread: any.
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

// core. What the coordinator's machine (round.h) is given at its start.
// Owner:   a value; copy freely.   Thread: any.

namespace drun::rendezvous {

struct RoundSpec {
  std::string run_id;
  std::uint64_t term = 0;  // of its election; 0: it was not elected
  int rounds = 0;          // that had begun before it
  bool is_back = false;    // it led the last of them itself: no node was lost with it
  int node_count = 1;      // the most, when elastic
  std::optional<ElasticSpec> elastic{};
  int max_restarts = 0;
  RestartPolicy restart{};
  bool preflight = false;
  std::string endpoint;     // for messages
  std::string master_addr;  // for members that were given none of their own
  std::uint16_t master_port = 0;
  bool use_agent_store = true;
  std::chrono::milliseconds join_timeout{std::chrono::minutes(15)};
  std::chrono::milliseconds heartbeat_timeout{std::chrono::seconds(15)};
  std::size_t line_window_bytes =
      0;  // rendezvous/protocol/line_window.h; 0: nodes keep their workers' lines
};

}  // namespace drun::rendezvous

namespace drun::rendezvous {

using Time = std::chrono::steady_clock::time_point;
// One connection; never used twice.
using Peer = std::uint64_t;

// A connection with its first message. Connections that are silent are PendingConnections'.
struct PeerArrived {
  Peer peer = 0;
  std::string address;
  MemberMessage message;
};
struct PeerSaid {
  Peer peer = 0;
  MemberMessage message;
};
struct PeerLeft {
  Peer peer = 0;
  std::string reason;  // "its connection closed"
};
// The coordinator's own agent has an outcome of its own, and will not be a member (any more).
struct HostEnded {};
// Whether another agent would coordinate the job if this one went; told before each signal.
struct SuccessorKnown {
  bool is_there = false;
};
// When the job has to be over, as far as this agent knows. Replaces what was known before.
struct JobDeadline {
  Time signal_at{};  // the workers get `signal`
  Time stop_at{};    // what still runs is stopped as usual
  int signal = 0;
  std::string reason;  // "the time limit of Slurm job 7 ends at 14:00:00"
  bool operator==(const JobDeadline&) const = default;
};
struct DeadlineKnown {
  std::optional<JobDeadline> deadline{};
};
struct RoundTick {};
using RoundEvent = std::variant<PeerArrived, PeerSaid, PeerLeft, HostEnded, SuccessorKnown,
                                DeadlineKnown, RoundTick>;

struct SendTo {
  Peer peer = 0;
  CoordinatorMessage message;
};
// The same to every member that is not lost.
struct SendAll {
  std::vector<Peer> peers;
  CoordinatorMessage message;
};
// One answer to questions of several peers: `answer` is StacksTold or CensusTold, and the question
// in it is replaced by that of each asker. Encoded once, and again only for another `answer`.
struct Asker {
  Peer peer = 0;
  std::uint64_t question = 0;  // the peer's number for it
};
struct SendAnswer {
  std::vector<Asker> askers;
  std::shared_ptr<const CoordinatorMessage> answer;
};
// After what was sent to it has gone out. PeerLeft may follow, and is ignored.
struct Drop {
  Peer peer = 0;
};
// Before anything that stands after it.
struct ClearStore {};
struct RoundLog {
  LogLevel level = LogLevel::Info;
  std::string text;
};
// One of these is the last action of all. Over: nobody is left, or waited for. StepDown: the job
// goes on, with another coordinator.
struct RoundOver {};
struct StepDown {};
using RoundAction =
    std::variant<SendTo, SendAll, SendAnswer, Drop, ClearStore, RoundLog, RoundOver, StepDown>;

}  // namespace drun::rendezvous
