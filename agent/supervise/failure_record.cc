#include "agent/supervise/failure_record.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "agent/diagnosis/error_file.h"
#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/hang_positions.h"
#include "agent/output/log_files.h"
#include "agent/output/worker_stream.h"
#include "agent/workers/worker_command.h"

namespace drun::agent {
namespace {

Failure failure_of(const AgentSpec& spec, const World& world, int local_rank) {
  Failure failure;
  failure.rank = world.base_rank + local_rank;
  failure.local_rank = local_rank;
  failure.node_rank = world.node_rank;
  failure.round = world.round;
  failure.role = role_of(world, local_rank).name;
  failure.host = spec.host;
  failure.program =
      world.is_preflight ? spec.preflight_argv.at(0) : program_name(spec.worker, local_rank);
  return failure;
}

// For display. The worker's own time is the best one, but most workers write whole seconds. If it
// is in the same second as the worker's end, the time of the end is more precise.
WallTime closer_time(WallTime ended, WallTime told) {
  return std::chrono::floor<std::chrono::seconds>(ended) == told ? ended : told;
}

// The brief failure with the error file and stderr of the worker. `stderr_tail`: absent if its
// stderr did not pass through drun. Reads files, so do not call it in the loop.
Failure full_failure(Failure brief, const WorkerStreams& streams,
                     std::optional<std::vector<std::string>> stderr_tail) {
  if (stderr_tail) {
    brief.stderr_tail = *std::move(stderr_tail);
  } else if (!streams.stderr_file.empty()) {
    brief.stderr_tail = last_lines(read_end_of(streams.stderr_file, kTailBytes));
  }
  brief.stderr_file = streams.stderr_file;
  if (streams.error_file.empty()) return brief;
  const Result<std::optional<ErrorRecord>> record = read_error_file(streams.error_file);
  if (!record || !*record) return brief;
  brief.error_file = streams.error_file;
  brief.message = (*record)->message;
  brief.traceback = (*record)->traceback;
  if ((*record)->time) brief.time = closer_time(brief.time, *(*record)->time);
  return brief;
}

}  // namespace

Failure brief_failure(const AgentSpec& spec, const World& world, const WorkerEnd& end) {
  Failure failure = failure_of(spec, world, end.local_rank);
  failure.pid = end.pid;
  failure.status = end.status;
  failure.time = end.time;
  failure.out_of_memory = end.out_of_memory;
  failure.message = end.message;
  return failure;
}

std::vector<Failure> hung_failures(const AgentSpec& spec, const World& world,
                                   const std::vector<hang::Suspect>& suspects,
                                   const std::vector<int>& pids) {
  const auto now = std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  std::vector<Failure> failures;
  failures.reserve(suspects.size());
  for (const hang::Suspect& suspect : suspects) {
    failures.push_back(brief_failure(spec, world,
                                     {.local_rank = suspect.local_rank,
                                      .pid = pids[static_cast<std::size_t>(suspect.local_rank)],
                                      .status = Hung{suspect.how},
                                      .seen = {},  // the coordinator dates hangs itself
                                      .time = now,
                                      .message = ""}));
  }
  return failures;
}

Failure unable_failure(const AgentSpec& spec, const World& world, const Error& error) {
  Failure failure = failure_of(spec, world, 0);
  failure.status = NotStarted{EIO};
  failure.time = std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now());
  failure.message = error.message;
  return failure;
}

void RoundFailures::begin_round(const World& world) {
  world_ = world;
  ends_.clear();
  stacks_.clear();
  full_.clear();
}

supervision::FailureKind RoundFailures::kind_of(const WorkerEnd& end) const {
  Failure failure = brief_failure(spec_, world_, end);
  if (const auto tail = output_.stderr_tail(end.local_rank)) failure.stderr_tail = *tail;
  if (has_only_waited(failure)) return supervision::FailureKind::Waited;
  if (has_lost_peer(failure)) return supervision::FailureKind::LostPeer;
  return supervision::FailureKind::Own;
}

rendezvous::SeenFailure RoundFailures::brief(int local_rank) const {
  const auto end = std::find_if(ends_.begin(), ends_.end(), [local_rank](const WorkerEnd& each) {
    return each.local_rank == local_rank;
  });
  assert(end != ends_.end());
  return {brief_failure(spec_, world_, *end), end->seen};
}

bool RoundFailures::add_stacks(const Evidence& evidence) {
  if (!evidence.groups.empty()) stacks_ = stacks_at_failure(evidence);
  RankRanges failed;
  for (const WorkerEnd& end : ends_) add_rank(failed, world_.base_rank + end.local_rank);
  return is_every_rank_in_collective(evidence, failed);
}

void RoundFailures::read(const std::vector<WorkerStreams>& streams, std::function<void()> on_read) {
  if (ends_.empty()) return on_read();
  struct Source {
    rendezvous::SeenFailure brief;
    WorkerStreams streams;
    std::optional<std::vector<std::string>> stderr_tail;
  };
  std::vector<Source> sources;
  for (const WorkerEnd& end : ends_)
    sources.push_back({.brief = {brief_failure(spec_, world_, end), end.seen},
                       .streams = streams[static_cast<std::size_t>(end.local_rank)],
                       .stderr_tail = output_.stderr_tail(end.local_rank)});
  auto full = std::make_shared<std::vector<rendezvous::SeenFailure>>();
  output_.run_off_loop(
      [sources, full] {
        for (const Source& each : sources)
          full->push_back(
              {full_failure(each.brief.failure, each.streams, each.stderr_tail), each.brief.seen});
      },
      [this, sources, full, on_read = std::move(on_read)](bool has_run) {
        if (has_run) {
          full_ = std::move(*full);
        } else {
          for (const Source& each : sources) {
            full_.push_back(each.brief);
            if (each.stderr_tail) full_.back().failure.stderr_tail = *each.stderr_tail;
          }
        }
        on_read();
      });
}

void RoundFailures::complete(const std::function<std::vector<std::string>(int pid)>& gpu_faults) {
  for (rendezvous::SeenFailure& each : full_)
    each.failure.traceback = with_kernel_log(each.failure.traceback, gpu_faults(each.failure.pid));
  if (full_.empty() || stacks_.empty()) return;
  std::string& first = full_.front().failure.traceback;
  first = with_stacks(first, stacks_);
}

void leave_error_file(const AgentSpec& spec, const Outcome& outcome, const Log& log) {
  Result<void> written;
  if (const auto* failed = std::get_if<WorkersFailed>(&outcome.ending)) {
    const Failure& root = failed->failures.front();
    // Agents of one host share its files.
    const bool is_here =
        spec.join.elastic ? root.host == spec.host : root.node_rank == spec.join.node_rank;
    if (is_here && !root.error_file.empty()) {
      written = pass_on_error_file(root.error_file, spec.error_file, exit_code(root.status));
    } else if (!root.message.empty()) {
      written = write_error_file(
          spec.error_file,
          {.message = root.message, .traceback = root.traceback, .time = root.time});
    }
  } else if (const auto* not_run = std::get_if<NotRun>(&outcome.ending)) {
    written = write_error_file(
        spec.error_file,
        {.message = not_run->error.message, .traceback = "", .time = std::nullopt});
  }
  if (!written) log.warning(written.error().message);
}

}  // namespace drun::agent
