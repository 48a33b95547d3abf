#include "agent/supervise/failure_record.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "agent/diagnosis/error_file.h"
#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/fatal_signals.h"
#include "agent/diagnosis/hang_positions.h"
#include "agent/output/log_files.h"
#include "agent/output/stderr_record.h"
#include "agent/output/worker_stream.h"
#include "agent/process/kernel_reports.h"
#include "agent/wall_time.h"
#include "agent/workers/worker_command.h"

namespace drun::agent {
namespace {

// Of a stderr file, in search of the last error.
constexpr std::size_t kSearchedBytes = std::size_t{256} << 10;

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
WallTime closer_time(WallTime ended, WallTime reported) {
  return std::chrono::floor<std::chrono::seconds>(ended) == reported ? ended : reported;
}

// The end of a worker's stderr.
struct StderrEnd {
  std::vector<std::string> lines{};
  std::string error_before{};  // Output::error_before_tail()
};

Result<void> add_error_file(Failure& failure, const std::string& path) {
  const Result<std::optional<ErrorRecord>> record = read_error_file(path);
  if (!record) return record.error();
  if (!*record) return {};
  failure.error_file = path;
  failure.message = (*record)->message;
  failure.traceback = (*record)->traceback;
  if ((*record)->time) failure.time = closer_time(failure.time, *(*record)->time);
  return {};
}

StderrEnd end_of_file(const std::string& path) {
  const std::string text = read_end_of(path, kSearchedBytes);
  const WallTime now = wall_now();
  LastError error;
  error.take(text, now);
  const std::size_t tail_bytes = std::min(text.size(), kTailBytes);
  return {.lines = last_lines(std::string_view(text).substr(text.size() - tail_bytes)),
          .error_before = error.before(kTailLines, now)};
}

// A signal that is no consequence of an error comes without one, except for Python's stacks.
bool may_come_from(const ExitStatus& status, std::string_view error) {
  const auto* killed = std::get_if<Killed>(&status);
  if (killed == nullptr) return std::holds_alternative<Exited>(status);
  return killed->signal == SIGABRT || error.find("Fatal Python error") != error.npos;
}

// Does not block: reads only files of /proc and cgroups, and the state of /dev/shm.
SignalFacts collect_signal_facts() {
  SignalFacts facts{.counts_oom_kills = count_oom_kills().has_value()};
  rlimit limit{};
  if (::getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_max != RLIM_INFINITY)
    facts.processor_seconds = limit.rlim_max;
  facts.forbids_core_files = ::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0;
  std::ifstream("/proc/sys/kernel/core_pattern") >> facts.core_pattern;
  struct statvfs memory {};
  if (::statvfs("/dev/shm", &memory) == 0 && memory.f_blocks > 0)
    facts.shared_memory = {.size_bytes = memory.f_blocks * memory.f_frsize,
                           .free_bytes = memory.f_bavail * memory.f_frsize};
  return facts;
}

// Adds the last lines of the worker's stderr, the error before these lines as the traceback if it
// has none, and the account of a fatal signal. Does not block.
Failure with_stderr(Failure failure, const std::string& stderr_file, StderrEnd stderr_end) {
  failure.stderr_tail = std::move(stderr_end.lines);
  failure.stderr_file = stderr_file;
  if (failure.message.empty() && failure.traceback.empty() &&
      may_come_from(failure.status, stderr_end.error_before))
    failure.traceback = std::move(stderr_end.error_before);
  if (has_account(failure))
    failure.traceback = with_signal_account(failure.traceback,
                                            text_of(account_of(failure, collect_signal_facts())));
  return failure;
}

struct FullFailure {
  Failure failure;
  Result<void> error_file{};  // whether it could be used, if there is one
};

// The brief failure with the message, traceback and time of the worker's error file, and its stderr
// (`stderr_end` if given, else that of streams.stderr_file). The time is for display only and does
// not order failures. Reads files, so do not call it in the loop.
FullFailure full_failure(Failure brief, const WorkerStreams& streams,
                         std::optional<StderrEnd> stderr_end) {
  if (!stderr_end && !streams.stderr_file.empty()) stderr_end = end_of_file(streams.stderr_file);
  FullFailure full;
  if (!streams.error_file.empty()) full.error_file = add_error_file(brief, streams.error_file);
  full.failure = with_stderr(std::move(brief), streams.stderr_file,
                             std::move(stderr_end).value_or(StderrEnd()));
  return full;
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
  const auto now = wall_now();
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
  failure.time = wall_now();
  failure.message = error.message;
  return failure;
}

void RoundFailures::begin_round(const World& world) {
  world_ = world;
  ends_.clear();
  stacks_.clear();
  full_.clear();
  error_files_.clear();
}

supervision::FailureKind RoundFailures::kind_of(const WorkerEnd& end) const {
  Failure failure = brief_failure(spec_, world_, end);
  if (const auto tail = output_.stderr_tail(end.local_rank)) failure.stderr_tail = *tail;
  const std::string error_before = output_.error_before_tail(end.local_rank);
  if (may_come_from(end.status, error_before)) failure.traceback = error_before;
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

supervision::StacksShow RoundFailures::add_stacks(const Evidence& evidence) {
  if (!evidence.groups.empty()) stacks_ = stacks_at_failure(evidence);
  RankRanges failed;
  for (const WorkerEnd& end : ends_) add_rank(failed, world_.base_rank + end.local_rank);
  if (is_every_rank_in_collective(evidence, failed)) return supervision::StacksShow::AllWaiting;
  return difference(ending_ranks(evidence), failed).empty() ? supervision::StacksShow::RankOutside
                                                            : supervision::StacksShow::RankEnding;
}

void RoundFailures::read(const std::vector<WorkerStreams>& streams, std::function<void()> on_read) {
  if (ends_.empty()) return on_read();
  struct Source {
    rendezvous::SeenFailure brief;
    WorkerStreams streams;
    std::optional<StderrEnd> stderr_end{};
  };
  std::vector<Source> sources;
  for (const WorkerEnd& end : ends_) {
    Source source{.brief = {brief_failure(spec_, world_, end), end.seen},
                  .streams = streams[static_cast<std::size_t>(end.local_rank)]};
    if (std::optional<std::vector<std::string>> lines = output_.stderr_tail(end.local_rank))
      source.stderr_end = {.lines = *std::move(lines),
                           .error_before = output_.error_before_tail(end.local_rank)};
    sources.push_back(std::move(source));
  }
  auto full = std::make_shared<std::vector<FullFailure>>();
  // The first call counts: the result, or the end of the time if the log directory hangs.
  const auto on_end = [this, sources, full, is_over = std::make_shared<bool>(false),
                       on_read = std::move(on_read)](bool has_run) {
    if (std::exchange(*is_over, true)) return;
    reading_limit_.cancel();
    if (has_run) {
      for (std::size_t i = 0; i < full->size(); ++i) {
        FullFailure& each = (*full)[i];
        if (!each.error_file) log_.warning(each.error_file.error().message);
        if (std::string& path = each.failure.error_file; !path.empty()) {
          error_files_.emplace(each.failure.rank, path);
          if (!output_.keeps_files()) path.clear();
        }
        full_.push_back({std::move(each.failure), sources[i].brief.seen});
      }
    } else {
      for (const Source& each : sources)
        full_.push_back({with_stderr(each.brief.failure, each.streams.stderr_file,
                                     each.stderr_end.value_or(StderrEnd())),
                         each.brief.seen});
    }
    on_read();
  };
  reading_limit_.set(std::chrono::steady_clock::now() + kReadAtMost, [on_end] { on_end(false); });
  output_.run_off_loop(
      [sources, full] {
        for (const Source& each : sources)
          full->push_back(full_failure(each.brief.failure, each.streams, each.stderr_end));
      },
      on_end);
}

std::string RoundFailures::error_file_of(const Failure& failure) const {
  const auto found = error_files_.find(failure.rank);
  return found != error_files_.end() && failure.round == world_.round ? found->second : "";
}

void RoundFailures::complete(const std::function<std::vector<std::string>(int pid)>& gpu_faults) {
  for (rendezvous::SeenFailure& each : full_)
    each.failure.traceback = with_kernel_log(each.failure.traceback, gpu_faults(each.failure.pid));
  if (full_.empty() || stacks_.empty()) return;
  std::string& first = full_.front().failure.traceback;
  first = with_stacks(first, stacks_);
}

Result<void> leave_error_file(const AgentSpec& spec, const Outcome& outcome,
                              const std::string& root_file) {
  if (spec.error_file.empty()) return {};
  Result<void> written;
  if (const auto* failed = std::get_if<WorkersFailed>(&outcome.ending)) {
    const Failure& root = failed->failures.front();
    // Agents of one host share its files.
    const bool is_here =
        spec.join.elastic ? root.host == spec.host : root.node_rank == spec.join.node_rank;
    const std::string file = !root_file.empty() ? root_file : is_here ? root.error_file : "";
    if (!file.empty()) {
      written = pass_on_error_file(file, spec.error_file, exit_code(root.status));
    } else if (!root.message.empty()) {
      written = write_error_file(spec.error_file, {.message = root.message,
                                                   .traceback = shown_traceback(root.traceback),
                                                   .time = root.time});
    }
  } else if (const auto* not_run = std::get_if<NotRun>(&outcome.ending)) {
    written = write_error_file(
        spec.error_file,
        {.message = not_run->error.message, .traceback = "", .time = std::nullopt});
  }
  return written;
}

}  // namespace drun::agent
