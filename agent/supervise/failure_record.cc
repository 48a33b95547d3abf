#include "agent/supervise/failure_record.h"

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "agent/diagnosis/error_file.h"
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

void read_full_failures(std::vector<rendezvous::SeenFailure> brief,
                        const std::vector<WorkerStreams>& streams, Output& output,
                        std::function<void(std::vector<rendezvous::SeenFailure>)> on_read) {
  struct Source {
    WorkerStreams streams;
    std::optional<std::vector<std::string>> stderr_tail;
  };
  std::vector<Source> sources;
  for (const rendezvous::SeenFailure& each : brief) {
    const int local_rank = each.failure.local_rank;
    sources.push_back({.streams = streams[static_cast<std::size_t>(local_rank)],
                       .stderr_tail = output.stderr_tail(local_rank)});
  }
  auto full = std::make_shared<std::vector<rendezvous::SeenFailure>>();
  output.run_off_loop(
      [brief, sources, full] {
        for (std::size_t i = 0; i < brief.size(); ++i)
          full->push_back(
              {full_failure(brief[i].failure, sources[i].streams, sources[i].stderr_tail),
               brief[i].seen});
      },
      [brief, sources, full, on_read = std::move(on_read)](bool has_run) {
        if (has_run) return on_read(std::move(*full));
        std::vector<rendezvous::SeenFailure> known = brief;
        for (std::size_t i = 0; i < known.size(); ++i)
          if (sources[i].stderr_tail) known[i].failure.stderr_tail = *sources[i].stderr_tail;
        on_read(std::move(known));
      });
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
