// edge. Creates the record of a worker's failure: a brief one at once, and the full one when the
// worker's streams are drained and its error file can be read.
//
// An error file that cannot be used is ignored, with a warning.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/hang/hang.h"
#include "agent/output/output.h"
#include "agent/spec.h"
#include "agent/stacks/evidence.h"
#include "agent/supervise/supervision.h"
#include "agent/workers/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"
#include "rendezvous/member/client.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"

namespace drun::agent {

// The worker, its node, its exit status and the time: enough for the coordinator to stop the job.
Failure brief_failure(const AgentSpec& spec, const World& world, const WorkerEnd& end);

// The failures of workers that hang, as of now; `pids` by local rank.
std::vector<Failure> hung_failures(const AgentSpec& spec, const World& world,
                                   const std::vector<hang::Suspect>& suspects,
                                   const std::vector<int>& pids);

// The failure of a round that could not be started on this node.
Failure unable_failure(const AgentSpec& spec, const World& world, const Error& error);

// The failures of this node's workers in one round, in order.
class RoundFailures {
 public:
  // All must outlive it.
  RoundFailures(asio::io_context& io, Log log, const AgentSpec& spec, Output& output)
      : log_(std::move(log)), spec_(spec), output_(output), reading_limit_(io) {}

  void begin_round(const World& world);
  // By the last lines of the worker's stderr and the error before them, as far as they are here.
  supervision::FailureKind kind_of(const WorkerEnd& end) const;
  void add(const WorkerEnd& end) { ends_.push_back(end); }
  std::size_t count() const { return ends_.size(); }
  // The worker's failure must have been added.
  rendezvous::SeenFailure brief(int local_rank) const;

  // Adds the stacks of the other ranks to the first failure. Returns what they show.
  supervision::StacksShow add_stacks(const Evidence& evidence);

  // Adds what the workers left in `streams`: the message, traceback and time of the error file, the
  // last lines of stderr and the error before them, and the account of a fatal signal. The time is
  // for display only and does not order failures. Reads files off the loop; if they cannot be read
  // within kReadAtMost, the failures stay brief. `on_read` is called once: from here if there are
  // no failures, else from the loop.
  static constexpr std::chrono::seconds kReadAtMost{5};
  void read(const std::vector<WorkerStreams>& streams, std::function<void()> on_read);
  // Call after read(). `gpu_faults`: the lines of the kernel log that may concern a worker.
  void complete(const std::function<std::vector<std::string>(int pid)>& gpu_faults);
  // They name only error files that remain when drun exits.
  const std::vector<rendezvous::SeenFailure>& full() const { return full_; }
  // The error file of one of these failures, until drun exits; empty: none, or another round's.
  std::string error_file_of(const Failure& failure) const;

 private:
  Log log_;
  const AgentSpec& spec_;
  Output& output_;
  World world_;
  std::vector<WorkerEnd> ends_;
  std::string stacks_;
  std::vector<rendezvous::SeenFailure> full_;
  std::map<int, std::string> error_files_;  // by rank
  rendezvous::DeadlineTimer reading_limit_;
};

// Writes drun's own TORCHELASTIC_ERROR_FILE (spec.error_file) if the job failed. If the root
// cause's error file is on this node (`root_file`, or the one that the failure names), copies it
// and adds the exit code; otherwise writes the file from the outcome. Does nothing if
// spec.error_file is empty. Blocks.
Result<void> leave_error_file(const AgentSpec& spec, const Outcome& outcome,
                              const std::string& root_file);

}  // namespace drun::agent
