// core. What happens on a node in the course of its job, for those who look on: `--events`.
//
// Shape:   AgentStarted, then per round RoundBegan .. RoundEnded, then JobEnded.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/evidence.h"
#include "rendezvous/failure.h"
#include "rendezvous/outcome.h"
#include "rendezvous/world.h"

namespace drun::agent {

struct AgentStarted {
  int local_world_size = 1;
  std::vector<std::string> command;
};
struct RoundBegan {
  World world;
};
struct WorkerStarted {
  int round = 0;
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
};
struct WorkerFailed {
  Failure failure;
};
// Of a worker of this node: no sign of life for --hang-timeout.
struct HangSuspectedHere {
  Failure failure;
};
// What all nodes found out about a hang; the round is stopped for it.
struct HangFoundAnywhere {
  int round = 0;
  std::string cause;
  Evidence evidence;
};
// The job goes on without that node.
struct NodeLeftOut {
  LeftOut node;
};
// The workers of this node are being stopped, by whatever happened anywhere.
struct RoundStopping {
  int round = 0;
};
// No worker of the round runs here any more.
struct RoundEnded {
  int round = 0;
  bool has_succeeded = false;  // all of this node's workers returned 0
};
struct SignalCame {
  int signal = 0;
};
struct JobEnded {
  Outcome outcome;
};
using Event =
    std::variant<AgentStarted, RoundBegan, WorkerStarted, WorkerFailed, HangSuspectedHere,
                 HangFoundAnywhere, NodeLeftOut, RoundStopping, RoundEnded, SignalCame, JobEnded>;

// Where it happens: the same in every line of one file.
struct EventPlace {
  std::string run_id;
  std::string host;
  int pid = 0;  // the agent's
};

// One JSON object in one line, newline included: "time", "event", "run_id", "host", "agent_pid",
// then what the event has (launcher/LOOKING.md). Bytes that are not UTF-8 become U+FFFD. Never
// throws.
std::string event_line(const Event& event, const EventPlace& place, WallTime time);

}  // namespace drun::agent
