#include "agent/supervise/round_runner.h"

#include <utility>

#include "agent/process/guardian.h"
#include "agent/supervise/round_log.h"

namespace drun::agent {
namespace {

// When all processes are gone, only unkillable ones can still hold a pipe open.
constexpr std::chrono::seconds kDrainAtMost{1};

template <typename T>
std::optional<Error> error_of(const Result<T>& result) {
  return result ? std::nullopt : std::optional(result.error());
}

}  // namespace

RoundRunner::RoundRunner(const Context& context, Listener& listener)
    : io_(context.io),
      log_(context.log),
      spec_(context.spec),
      output_(context.output),
      observers_(context.observers),
      state_(context.state),
      listener_(listener),
      standard_input_(io_, spec_.lifeline.has_value(),
                      [this](const std::string& line) { output_.send_to_launcher(line); }),
      commands_(spec_,
                {.standard_input = standard_input_, .watch = watch_, .progress = progress_files_}),
      workers_(io_, log_,
               WorkersSpec{.shutdown_timeout = spec_.shutdown_timeout,
                           .leftovers = spec_.leftovers,
                           .unkillable_timeout = spec_.unkillable_timeout,
                           .most_at_once = static_cast<std::size_t>(spec_.join.local_world_size)},
               *this),
      faults_(io_, log_, spec_.faults,
              {.workers = workers_,
               .announce = [this](const InjectedFault& fault) { listener_.on_fault_due(fault); },
               .on_recorded =
                   [this](const InjectedFault& fault) {
                     observers_.write(FaultInjectedAnywhere{fault});
                   },
               .host = spec_.host,
               .first_round = spec_.join.preflight ? 1 : 0}),
      watch_(io_, log_, spec_, commands_.inherited(), output_),
      speed_(io_, spec_.speed_window),
      progress_files_(io_, log_, spec_.checkpoint_directory),
      gpus_(io_, log_, is_first_pid_namespace() ? kNvmlLibrary : ""),
      failures_(io_, log_, spec_, output_) {}

void RoundRunner::start_preloading() {
  std::optional<PreloaderSpec> preloader = commands_.preloader();
  if (!preloader) return;
  Preloader::Listener& listener = *this;
  preloader_.emplace(io_, log_, *std::move(preloader), listener);
  preloader_->start();
}

void RoundRunner::stop() {
  faults_.stop();
  watch_.stop();
  watch_.close();
  speed_.stop();
  progress_files_.stop();
  gpus_.stop();
  if (preloader_) preloader_->stop();
  standard_input_.stop();
}

// --- The start

void RoundRunner::begin_round(const World& world) {
  world_ = world;
  failures_.begin_round(world);
  pids_.clear();
  progress_ = {};
}

void RoundRunner::perform(const supervision::OpenStreams&) {
  output_.open_round(world_,
                     [this, round = world_.round](Result<std::vector<WorkerStreams>> streams) {
                       const std::optional<Error> error = error_of(streams);
                       if (streams && round == world_.round) streams_ = *std::move(streams);
                       listener_.on_event(supervision::StreamsOpened{round, error});
                     });
}

void RoundRunner::perform(const supervision::PrepareWorkers&) {
  const auto on_prepared = [this, round = world_.round](const Result<void>& prepared) {
    listener_.on_event(supervision::Prepared{round, error_of(prepared)});
  };
  const Result<void> prepared = watch_.prepare(world_);
  if (!prepared || !preloader_ || world_.is_preflight) return on_prepared(prepared);
  if (preloader_->when_imported(on_prepared)) observers_.enter(Phase::Import);
}

void RoundRunner::perform(const supervision::StopPreparing&) {
  if (preloader_) preloader_->stop_waiting();
}

void RoundRunner::perform(const supervision::StartWorkers&) {
  observers_.begin_spawn();
  Result<std::vector<Command>> commands = commands_.make(world_, streams_);
  if (!commands) return listener_.on_event(supervision::StartFailed{commands.error()});
  const bool is_warm = preloader_ && !world_.is_preflight;
  workers_.start(*std::move(commands), is_warm ? &*preloader_ : nullptr);
  faults_.begin_round(world_);
  watch_.start(
      world_, [this] { return workers_.pids(); },
      [this](const auto& suspects) { on_suspects(suspects); });
  watch_speed();
}

void RoundRunner::watch_speed() {
  SpeedWatch::Sources sources{
      .pids = [this] { return workers_.pids(); },
      .calls = [this](std::size_t local_rank) { return watch_.call_times(local_rank); },
      .step = [this](std::size_t local_rank) { return progress_files_.step(local_rank); },
      .report = [this](const NodeSpeed& speed) { listener_.on_speed(speed); }};
  if (watch_.can_ask_nccl())
    sources.ask_nccl = [this](auto on_positions) { watch_.ask_nccl(std::move(on_positions)); };
  speed_.start(world_, observers_.round_began(), std::move(sources));
}

void RoundRunner::on_all_started(const std::vector<int>& pids) {
  output_.close_worker_ends();
  pids_ = pids;
  observers_.note_started(pids);
}

// --- While the workers run

void RoundRunner::on_suspects(const std::vector<hang::Suspect>& suspects) {
  std::vector<Failure> failures = hung_failures(spec_, world_, suspects, workers_.pids());
  for (const Failure& failure : failures) observers_.write(HangSuspectedHere{failure});
  listener_.on_suspects(watch_.interval(), std::move(failures));
}

bool RoundRunner::holds_stop(const WorkerEnd& end) {
  if (!supervision::may_hold(state_)) return false;
  if (failures_.kind_of(end) == supervision::FailureKind::Own) return false;
  listener_.on_event(supervision::FailureAnnounced{end.local_rank});
  return true;
}

void RoundRunner::on_worker_failed(const WorkerEnd& seen) {
  const auto kind =
      supervision::is_holding(state_) ? failures_.kind_of(seen) : supervision::FailureKind::Own;
  const WorkerEnd end = faults_.as_injected(seen);
  faults_.end_round();
  failures_.add(end);
  listener_.on_event(supervision::WorkerFailed{end.local_rank, kind});
  Failure failure = brief_failure(spec_, world_, end);
  faults_.mark(failure);
  observers_.note_failed(failure);
  log_failure(log_, spec_, world_, failure);
}

void RoundRunner::perform(const supervision::StopLooking&) {
  faults_.end_round();
  speed_.stop();
  for (const int tool : watch_.stop()) workers_.disregard_group(tool);
}

void RoundRunner::perform(const supervision::StopWorkers& stop) {
  if (stop.notice > std::chrono::milliseconds::zero())
    workers_.stop_after_notice(stop.signal, stop.notice);
  else
    workers_.stop(stop.signal);
}

// --- The end

void RoundRunner::on_waiting(const LeftoverList& leftovers, std::chrono::milliseconds time_left) {
  log_waiting(log_, leftovers, time_left);
}

void RoundRunner::on_all_gone(const Leftovers& leftovers) {
  log_leftovers(log_, leftovers);
  for (const Leftover& process : leftovers.unkillable.listed) expect_unkillable(process.pid);
  listener_.on_event(supervision::AllGone{.has_kept = workers_.has_kept(),
                                          .unusable = unusable_reason(leftovers)});
}

void RoundRunner::perform(const supervision::DrainOutput&) {
  const auto on_drained = [this] { listener_.on_event(supervision::OutputDrained{}); };
  // Kept processes hold their pipes open, and their output is shown until drun exits.
  if (state_.has_kept && !spec_.output.gathers) return asio::post(io_, on_drained);
  output_.drain(kDrainAtMost, on_drained, Output::Until::Queued);
}

void RoundRunner::perform(const supervision::ReadFailures&) {
  failures_.read(streams_, [this] { listener_.on_event(supervision::FailuresRead{}); });
}

void RoundRunner::perform(const supervision::CollectProgress&) {
  progress_files_.collect([this](const WorkProgress& progress) {
    progress_ = progress;
    listener_.on_event(supervision::ProgressCollected{});
  });
}

void RoundRunner::perform(const supervision::FreeGpus&) {
  gpus_.wait(pids_, spec_.unkillable_timeout, [this](const std::string& unfreed) {
    listener_.on_event(supervision::GpusFreed{unfreed});
  });
}

void RoundRunner::complete_failures() {
  failures_.complete([this](int pid) { return watch_.gpu_faults(pid, pids_); });
}

}  // namespace drun::agent
