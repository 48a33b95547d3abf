#include "agent/supervise/supervision.h"

#include <algorithm>
#include <cassert>
#include <initializer_list>
#include <utility>

#include "agent/workers/worker_group.h"

namespace drun::agent::supervision {
namespace {

static_assert(kStacksHold < worker_group::Times{}.hold);

bool is_in(const State& state, std::initializer_list<Stage> stages) {
  return std::find(stages.begin(), stages.end(), state.stage) != stages.end();
}

template <typename... Conditions>
bool is(const State& state) {
  return (std::holds_alternative<Conditions>(state.condition) || ...);
}

// One step of the machine. Collects the actions that the event causes.
class Turn {
 public:
  Turn(State& state, Time now) : state_(state), now_(now) {}

  void handle(const WorldArrived& world);
  void handle(const StreamsOpened& opened);
  void handle(const Prepared& prepared);
  void handle(const StartFailed& failed) {
    goes_on(Stage::Running, state_.world.round, failed.error);
  }
  void handle(const FailureAnnounced& announced);
  void handle(const WorkerFailed& failed);
  void handle(const StacksArrived& stacks);
  void handle(const AllSucceeded&);
  void handle(const AllGone& gone);
  void handle(const OutputDrained&);
  void handle(const FailuresRead&);
  void handle(const ProgressCollected&);
  void handle(const GpusFreed& freed);
  void handle(const StopWanted& stop);
  void handle(const TerminateSignal& terminate);
  void handle(const KillWanted&);
  void handle(const OutcomeArrived& outcome);
  void handle(const ServerFinished&);
  void handle(const OutputFlushed&);
  void handle(const DeadlinePassed& passed);

  std::vector<Action> take_actions() { return std::move(actions_); }

 private:
  bool goes_on(Stage stage, int round, const std::optional<Error>& error);
  void report_unable(const Error& error);
  void report_failure(int local_rank);
  void end_hold(int local_rank);
  void finish_round();
  void stop_kept();
  void end_if_ready();
  void limit_console();

  // Every way to a further round on this node is open.
  bool is_job_going() const {
    return state_.job == Job::Going && state_.interrupt == Interrupt::None;
  }
  // Leftover processes are kept only if the whole job succeeds.
  bool is_without_success() const {
    return is<Stopping>(state_) || state_.interrupt != Interrupt::None ||
           state_.job == Job::NotSucceeded;
  }
  template <typename... Kinds>
  void act(Kinds... actions) {
    (actions_.emplace_back(std::move(actions)), ...);
  }
  void note_unusable(const std::string& reason) {
    if (state_.unusable.empty()) state_.unusable = reason;
  }

  State& state_;
  const Time now_;
  std::vector<Action> actions_;
};

// --- The start of a round

void Turn::handle(const WorldArrived& world) {
  if (state_.job != Job::Going) return;
  assert(is_between_rounds(state_));
  state_.world = world;
  state_.has_kept = false;
  state_.condition =
      state_.interrupt == Interrupt::None ? Condition(Healthy{}) : Condition(Stopping{});
  if (!state_.unusable.empty()) return report_unable({ErrorCode::System, state_.unusable});
  state_.stage = Stage::Opening;
  act(OpenStreams{});
}

void Turn::handle(const StreamsOpened& opened) {
  if (!goes_on(Stage::Opening, opened.round, opened.error)) return;
  state_.stage = Stage::Preparing;
  act(PrepareWorkers{});
}

void Turn::handle(const Prepared& prepared) {
  if (!goes_on(Stage::Preparing, prepared.round, prepared.error)) return;
  state_.stage = Stage::Running;
  act(StartWorkers{});
}

// Whether the round, which is in that stage, is to be started. It may have been stopped meanwhile.
bool Turn::goes_on(Stage stage, int round, const std::optional<Error>& error) {
  if (state_.stage != stage || state_.world.round != round) return false;
  const bool is_wanted = is<Healthy>(state_) && state_.job == Job::Going;
  if (is_wanted && !error) return true;
  if (is_wanted) {
    report_unable(*error);
    return false;
  }
  state_.stage = Stage::Over;
  act(CloseWorkerEnds{});
  if (state_.job == Job::Going) act(ReportStopped{});
  end_if_ready();
  return false;
}

// This node cannot run the round (full disk, no descriptors left). The coordinator gets the reason
// and tells all nodes.
void Turn::report_unable(const Error& error) {
  state_.stage = Stage::Over;
  state_.condition = Failed{};
  act(CloseWorkerEnds{}, ReportUnable{error});
}

// --- Failures

void Turn::handle(const FailureAnnounced& announced) {
  if (may_hold(state_)) state_.condition = Announced{announced.local_rank};
}

void Turn::handle(const WorkerFailed& failed) {
  if (state_.stage != Stage::Running) return;
  const auto* announced = std::get_if<Announced>(&state_.condition);
  if (announced != nullptr && announced->local_rank == failed.local_rank) {
    const bool has_waited = failed.kind == FailureKind::Waited;
    state_.condition =
        Held{failed.local_rank, now_ + (has_waited ? Milliseconds(kStacksHold) : kPeerHold)};
    if (has_waited) act(AskForStacks{});
    return;
  }
  const bool is_held = is_holding(state_);
  auto* held = std::get_if<Held>(&state_.condition);
  if (is_held && failed.kind != FailureKind::Own) {
    if (held != nullptr && held->is_for_ending)
      held->until = std::min(held->until, now_ + kOwnErrorHold);
    return;
  }
  if (is_held) return end_hold(failed.local_rank);
  if (is<Healthy>(state_)) report_failure(failed.local_rank);
  act(StopLooking{});
}

void Turn::report_failure(int local_rank) {
  state_.condition = Failed{};
  if (state_.job == Job::Going) act(ReportFailure{local_rank});
}

// Reports that failure, which may be another one than was held.
void Turn::end_hold(int local_rank) {
  report_failure(local_rank);
  act(StopLooking{}, StopWorkers{});
}

void Turn::handle(const StacksArrived& stacks) {
  auto* held = std::get_if<Held>(&state_.condition);
  if (held == nullptr || stacks.round != state_.world.round) return;
  if (stacks.show == StacksShow::AllWaiting) return end_hold(held->local_rank);
  held->is_for_ending = stacks.show == StacksShow::RankEnding;
  if (!held->is_for_ending) held->until = std::min(held->until, now_ + kOwnErrorHold);
}

// --- The end of a round

void Turn::handle(const AllSucceeded&) {
  if (state_.stage == Stage::Running) act(StopLooking{});
}

void Turn::handle(const AllGone& gone) {
  note_unusable(gone.unusable);
  state_.has_kept = gone.has_kept;
  if (state_.stage != Stage::Running) return;  // kept processes, killed at the end of the job
  assert(!is<Announced>(state_));
  if (const auto* held = std::get_if<Held>(&state_.condition)) {
    report_failure(held->local_rank);
    act(StopLooking{});
  }
  state_.stage = Stage::Draining;
  act(DrainOutput{});
  limit_console();
}

void Turn::handle(const OutputDrained&) {
  if (state_.stage != Stage::Draining) return;
  state_.stage = Stage::Reading;
  act(ReadFailures{});
}

// The coordinator needs the progress, besides the failures, to decide about a restart.
void Turn::handle(const FailuresRead&) {
  if (state_.stage != Stage::Reading) return;
  if (!is_job_going() || state_.world.is_preflight || is<Healthy>(state_)) return finish_round();
  state_.stage = Stage::Collecting;
  act(CollectProgress{});
}

void Turn::handle(const ProgressCollected&) {
  if (state_.stage != Stage::Collecting) return;
  if (!is_job_going() || !state_.may_restart) return finish_round();
  state_.stage = Stage::Freeing;
  act(FreeGpus{});
}

void Turn::handle(const GpusFreed& freed) {
  if (state_.stage != Stage::Freeing) return;
  note_unusable(freed.unusable);
  finish_round();
}

void Turn::finish_round() {
  if (state_.has_kept && is_without_success()) return stop_kept();
  state_.stage = Stage::Over;
  const bool has_succeeded = is<Healthy>(state_);
  act(NoteRoundEnd{has_succeeded});
  if (state_.job != Job::Going) return end_if_ready();
  act(EnterPhase{has_succeeded ? Phase::Waiting : Phase::Restarting});
  if (has_succeeded)
    act(ReportSuccess{});
  else
    act(ReportStopped{});
}

// AllGone follows again.
void Turn::stop_kept() {
  state_.stage = Stage::Running;
  act(StopWorkers{});
}

// --- Stops and signals

void Turn::handle(const StopWanted& stop) {
  if (state_.job != Job::Going || state_.stage == Stage::NoRound ||
      stop.round != state_.world.round)
    return;
  const bool is_over = state_.stage == Stage::Over;
  if (is_over && !is<Healthy>(state_)) return;  // reported as stopped
  state_.condition = Stopping{};
  act(StopPreparing{}, StopLooking{}, NoteStop{});
  if (!is_over) act(EnterPhase{Phase::Stopping});
  if (state_.stage == Stage::Running) act(StopWorkers{stop.signal, stop.notice});
  if (!is_over) return;
  if (state_.has_kept) return stop_kept();
  act(ReportStopped{});
}

void Turn::handle(const TerminateSignal& terminate) {
  if (state_.interrupt != Interrupt::None) return;
  state_.interrupt = Interrupt::Terminate;
  if (!is_between_rounds(state_)) state_.condition = Stopping{};
  act(StopPreparing{}, StopLooking{}, StopFreeing{});
  if (state_.stage == Stage::Running)
    act(StopWorkers{terminate.signal}, EnterPhase{Phase::Stopping});
  act(InterruptJob{terminate.signal});
  if (state_.job == Job::Flushing) state_.drop_output_at = now_ + kConsolePatience;
}

void Turn::handle(const KillWanted&) {
  assert(state_.interrupt != Interrupt::None);
  state_.interrupt = Interrupt::Kill;
  act(KillWorkers{});
  if (state_.stage == Stage::Over && state_.has_kept && state_.job != Job::Flushing) {
    state_.stage = Stage::Running;
    state_.condition = Stopping{};
  }
  if (state_.stage != Stage::Running) limit_console();
}

// --- The end of the job

void Turn::handle(const OutcomeArrived& outcome) {
  if (state_.job != Job::Going) return;
  state_.job = outcome.has_succeeded ? Job::Succeeded : Job::NotSucceeded;
  state_.has_server = outcome.has_server;
  act(StopPreparing{}, StopLooking{}, StopFreeing{}, StopCollecting{});
  if (state_.stage == Stage::Running) act(StopWorkers{});
  if (state_.stage == Stage::Over && state_.has_kept && is_without_success()) stop_kept();
  end_if_ready();
}

void Turn::handle(const ServerFinished&) {
  state_.has_server = false;
  end_if_ready();
}

// Nothing runs here. Lines from other nodes may still be on their way to the console.
void Turn::end_if_ready() {
  const bool is_decided = state_.job == Job::Succeeded || state_.job == Job::NotSucceeded;
  if (!is_decided || !is_between_rounds(state_) || state_.has_server) return;
  state_.job = Job::Flushing;
  act(FlushOutput{});
  limit_console();
}

void Turn::handle(const OutputFlushed&) {
  if (state_.job != Job::Flushing) return;
  state_.job = Job::Closed;
  act(End{});
}

// --- Time

void Turn::limit_console() {
  if (state_.interrupt == Interrupt::Kill) state_.drop_output_at = now_ + kConsolePatience;
}

void Turn::handle(const DeadlinePassed& passed) {
  if (const auto* held = std::get_if<Held>(&state_.condition); held && held->until <= now_)
    end_hold(held->local_rank);
  if (!state_.drop_output_at || now_ < *state_.drop_output_at) return;
  const bool is_active = !is_between_rounds(state_);
  const bool is_waiting = is_active || state_.job == Job::Flushing;
  const bool are_workers_gone =
      state_.stage != Stage::Running && !(is_active && state_.has_kept);  // kept ones were killed
  if (are_workers_gone && (is_waiting || passed.is_console_blocked)) {
    state_.drop_output_at.reset();
    return act(DropOutput{});
  }
  limit_console();  // other nodes' output may still come
}

}  // namespace

std::vector<Action> step(State& state, const Event& event, Time now) {
  if (state.job == Job::Closed) return {};
  Turn turn(state, now);
  std::visit([&turn](const auto& happened) { turn.handle(happened); }, event);
  return turn.take_actions();
}

std::optional<Time> deadline(const State& state) {
  if (state.job == Job::Closed) return std::nullopt;
  const auto* held = std::get_if<Held>(&state.condition);
  if (held == nullptr) return state.drop_output_at;
  return std::min(held->until, state.drop_output_at.value_or(held->until));
}

bool may_hold(const State& state) {
  return state.stage == Stage::Running && is<Healthy>(state) && state.job == Job::Going &&
         state.interrupt == Interrupt::None && !state.world.is_preflight &&
         state.world.world_size > 1;
}

bool is_holding(const State& state) { return is<Announced, Held>(state); }

bool is_between_rounds(const State& state) { return is_in(state, {Stage::NoRound, Stage::Over}); }

NodePhase node_phase(const State& state) {
  switch (state.stage) {
    case Stage::NoRound:
    case Stage::Opening:
    case Stage::Preparing:
      return NodePhase::Joining;
    case Stage::Running:
      return is<Failed, Stopping>(state) ? NodePhase::Stopping : NodePhase::Running;
    case Stage::Draining:
    case Stage::Reading:
    case Stage::Collecting:
    case Stage::Freeing:
      return NodePhase::Stopping;
    case Stage::Over:
      return NodePhase::Waiting;
  }
  return NodePhase::Waiting;
}

}  // namespace drun::agent::supervision
