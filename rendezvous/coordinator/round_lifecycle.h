// core. The life of a round and of the job: how a world forms and begins, how it is stopped, what
// follows once all its workers have stopped (a restart, another world, the end), and which nodes
// the next world excludes. round.h has the chart.
//
// All functions are parts of one step, and add their actions to it.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/coordinator/round_state.h"

namespace drun::rendezvous {

// --- Begin

// Joining: begins the next world if there are enough nodes. If the job had to wait for them, it
// first waits for more until the last call ends, unless that is skipped.
enum class LastCall { Wait, Skip };
void form_world(RoundStep& step, LastCall last_call);

// The join timeout has passed with too few nodes: the job ends.
void waited_too_long(RoundStep& step);

// --- Stop

void stop_round(RoundStep& step, std::string cause, std::optional<StopNotice> notice = {});
// A failure stops it: the next round is a restart, if one is left.
void stop_failed_round(RoundStep& step, std::string cause);

// The node has stopped, has returned 0, or is lost.
void mark_done(RoundState& state, int node);

// Counts as progress if the job was never there before.
void note_progress(RoundState& state, const WorkProgress& progress);

// Decides what follows if the round is being stopped and all its workers have stopped.
void conclude_if_stopped(RoundStep& step);

// No worker runs: returns the nodes to the line and forms the next world.
void next_world(RoundStep& step);

// --- End

// Ends the job with `ending`, unless it is already ending for another reason. Stops the round first
// if one is running.
void end_with(RoundStep& step, Ending ending, std::string cause,
              std::optional<StopNotice> notice = {});

// Sends the outcome. Requires that no worker runs.
void finish(RoundStep& step, Ending ending);

// Ending: the job is over once no member is connected.
void over_if_alone(RoundStep& step);

// The job's deadline is near: the workers get a signal and time to save their state, and the job
// ends.
void preempt(RoundStep& step);

// Requires that no worker runs. Disconnects all members, which then look for the new coordinator.
void step_down(RoundStep& step);

// --- Nodes that leave the job while it continues

// Whether enough nodes are left without it, and the coordinator is not lost.
bool can_leave(const RoundState& state, int node, Time now);

// A node that can leave has received a signal. It leaves once its workers have stopped.
void let_go(RoundStep& step, int node, int signal);

// Its workers have stopped: sends it its own outcome.
void dismiss(RoundStep& step, int node);

// Running, with --exclude-slow: stops the round if a standby node can replace a slow one.
void replace_slow(RoundStep& step);

}  // namespace drun::rendezvous
