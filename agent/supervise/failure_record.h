// edge. Creates the record of a worker's failure: a brief one at once, and the full one when the
// worker's streams are drained and its error file can be read.
//
// An error file that cannot be used is ignored.   Thread: the io_context's only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/hang.h"
#include "agent/output/output.h"
#include "agent/spec.h"
#include "agent/workers/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"
#include "rendezvous/member/client.h"

namespace drun::agent {

// The worker, its node, its exit status and the time: enough for the coordinator to stop the job.
Failure brief_failure(const AgentSpec& spec, const World& world, const WorkerEnd& end);

// The failures of workers that hang, as of now; `pids` by local rank.
std::vector<Failure> hung_failures(const AgentSpec& spec, const World& world,
                                   const std::vector<hang::Suspect>& suspects,
                                   const std::vector<int>& pids);

// The failure of a round that could not be started on this node.
Failure unable_failure(const AgentSpec& spec, const World& world, const Error& error);

// Adds the message, traceback and time of the worker's error file, and the last lines of its
// stderr: `stderr_tail` if given, else the end of streams.stderr_file. The time is for display only
// and does not order failures. Reads files, so do not call it in the loop.
Failure full_failure(Failure brief, const WorkerStreams& streams,
                     std::optional<std::vector<std::string>> stderr_tail);

// Completes all failures of a round off the loop. `on_read` is called once, from the loop; if the
// files could not be read, with the brief failures.
void read_full_failures(std::vector<rendezvous::SeenFailure> brief,
                        const std::vector<WorkerStreams>& streams, Output& output,
                        std::function<void(std::vector<rendezvous::SeenFailure>)> on_read);

// Writes drun's own TORCHELASTIC_ERROR_FILE (spec.error_file) if the job failed. If the root
// cause's error file is on this node, copies it and adds the exit code; otherwise writes the file
// from the outcome. Does nothing if spec.error_file is empty.
void leave_error_file(const AgentSpec& spec, const Outcome& outcome, const Log& log);

}  // namespace drun::agent
