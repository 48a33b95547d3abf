// edge. The agent of one node: connects rendezvous, workers, output and signals. It turns their
// callbacks into events of the state machine in supervision.h, and carries out its actions: those
// of the job itself, and those of the workers through round_runner.h.
//
//   Client   on_world    Output opens the round's streams, then Workers start
//   Workers  failed      Client tells the coordinator at once (Workers stop the others themselves)
//   Client   on_stop     Workers stop
//   Workers  all gone    Output drains and reads the failures' files, then Client reports: success,
//                        or stopped with the failures in full
//   Signals  terminate   Client interrupts the job, Workers stop with that signal
//   Client   on_outcome  the end, when nothing runs here and (on the coordinator) all members have
//                        received the outcome
//
// These do not change its state:
//
//   Client   on_node_query   the agent answers from its state, Watch reads the workers' stacks, or
//                   a file is read; Client sends the answer to the coordinator
//   Watch    suspects    Client tells the coordinator, which examines all nodes and may stop the
//                        round
//
// While the loop runs, drun's log goes to Output's console. An event is sent to the coordinator
// before it is logged. run_agent() runs an io_context in the calling thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/output/stderr_record.h"
#include "agent/spec.h"
#include "agent/status/phases.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

struct AgentEnd {
  Outcome outcome;
  std::string events;            // the lines of all events, if AgentSpec::keeps_events
  PhaseTimes phases{};           // of this node
  std::string log_directory;     // where this node's log files are; empty: none were kept
  bool was_coordinator = false;  // this agent coordinated the job when it ended
  std::optional<World> world{};  // of the last round; absent: no round started
  // Collectives that ranks of this node had reported as timed out before the job was stopped.
  std::vector<ReportedTimeout> timeouts{};
  bool has_lost_stdout = false;  // text for it could not be written, as on a full disk
  // Must be written to the channel before any other frame (Output::unfinished_frame).
  std::string unfinished_frame{};
};

// Runs the job as this node's agent, from joining to the end. When it returns, no process of the
// job runs on this node, except unkillable ones, which have been logged. All errors are in the
// outcome. Never throws.
AgentEnd run_agent(const AgentSpec& spec, const Log& log);

}  // namespace drun::agent
