// edge. Makes the one record of a failure out of what the agent knows: brief at once, in full when
// the worker's streams are drained and its error file is there.
//
// Thread: the io_context's only.   Errors: none; an error file that cannot be used is left out.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/hang.h"
#include "agent/output/output.h"
#include "agent/spec.h"
#include "agent/supervise/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"
#include "rendezvous/member/client.h"

namespace drun::agent {

// Who, where, how and when: enough to stop the job by. (core)
Failure brief_failure(const AgentSpec& spec, const World& world, const WorkerEnd& end);

// Workers that show no sign of life, now; `pids` by local rank. (core, but for the clock)
std::vector<Failure> hung_failures(const AgentSpec& spec, const World& world,
                                   const std::vector<hang::Suspect>& suspects,
                                   const std::vector<int>& pids);

// A round that could not be started on this node at all. (core)
Failure unable_failure(const AgentSpec& spec, const World& world, const Error& error);

// With the error file's message, traceback and time, which is for display and does not order
// failures; and the last lines of stderr: those given, or else those of streams.stderr_file. Reads
// the files: not in the loop.
Failure full_failure(Failure brief, const WorkerStreams& streams,
                     std::optional<std::vector<std::string>> stderr_tail);

// Of all that have failed in a round, by their streams of that round. The files are read off the
// loop; `on_read` is called once, from the loop, with brief failures where they cannot be read.
void read_full_failures(std::vector<rendezvous::SeenFailure> brief,
                        const std::vector<WorkerStreams>& streams, Output& output,
                        std::function<void(std::vector<rendezvous::SeenFailure>)> on_read);

// drun's own TORCHELASTIC_ERROR_FILE (spec.error_file): the root cause's error file with its exit
// code added where it is on this node, else the same told from the outcome. Nothing when there is
// none to write or the job succeeded.
void leave_error_file(const AgentSpec& spec, const Outcome& outcome, const Log& log);

}  // namespace drun::agent
