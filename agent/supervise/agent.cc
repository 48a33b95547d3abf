#include "agent/supervise/agent.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/diagnosis/diagnosis.h"
#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/hang_positions.h"
#include "agent/hang/hang_verdict.h"
#include "agent/hang/worker_watch.h"
#include "agent/output/log_files.h"
#include "agent/output/output.h"
#include "agent/output/progress.h"
#include "agent/output/worker_stdin.h"
#include "agent/preload/preloader.h"
#include "agent/process/guardian.h"
#include "agent/process/host_slot.h"
#include "agent/process/lifeline.h"
#include "agent/process/signals.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/speed/speed_watch.h"
#include "agent/stacks/evidence.h"
#include "agent/status/log_query.h"
#include "agent/status/node_status.h"
#include "agent/supervise/coordinator_seat.h"
#include "agent/supervise/deadline_watch.h"
#include "agent/supervise/failure_record.h"
#include "agent/supervise/fault_injector.h"
#include "agent/supervise/observers.h"
#include "agent/supervise/round_log.h"
#include "agent/workers/gpu_release.h"
#include "agent/workers/progress_files.h"
#include "agent/workers/worker_command.h"
#include "agent/workers/worker_key_file.h"
#include "agent/workers/workers.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
#include "rendezvous/coordinator/server.h"
#include "rendezvous/member/client.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {
namespace {

// Of this agent's own query of stacks; those of local sockets count from 1.
constexpr std::uint64_t kOwnQuery = std::numeric_limits<std::uint64_t>::max();
// Less than worker_group::Times::hold, and enough for the coordinator's limit for stacks and
// kOwnErrorHold.
constexpr std::chrono::seconds kMostHold{14};
constexpr std::chrono::seconds kOwnErrorHold{3};
constexpr std::chrono::seconds kPeerHold{1};
// When all processes are gone, only unkillable ones can still hold a pipe open.
constexpr std::chrono::seconds kDrainAtMost{1};

constexpr std::size_t kMostLogReads = 64;

using Clock = std::chrono::steady_clock;

class Agent final : rendezvous::Client::Listener,
                    Workers::Listener,
                    Signals::Listener,
                    Preloader::Listener {
 public:
  Agent(const AgentSpec& spec, const Log& log);
  AgentEnd run();

 private:
  // The state of this node in the latest round that it knows.
  // Opening: the files of its streams; no worker runs yet. Draining: until its failures are read.
  enum class Round { None, Opening, Running, Draining, Over };

  Result<void> open();
  Result<void> open_server(JoinSpec& join);
  void show_joining() {
    if (server_) progress_.start([this] { return server_ ? server_->roll_call() : std::nullopt; });
  }
  // Until the next world or the end of the job.
  void show_preflight() {
    if (!server_) return;
    progress_.start([this] {
      const auto since = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - round_began_);
      return preflight_text(*world_) + "; " + rendezvous::duration_text(since);
    });
  }
  void end_if_ready();
  void end();

  void on_world(const World& world) override;
  void on_stop(int round, const std::optional<rendezvous::StopNotice>& notice) override;
  void on_outcome(const Outcome& outcome) override;
  void on_node_query(const rendezvous::NodeQuery& query) override;
  void on_query_result(const rendezvous::QueryResult& result) override {
    if (result.number != kOwnQuery) return observers_.answer(result);
    take_stacks(decode_evidence(result.answer).value_or(Evidence{}));
  }
  void read_stacks(std::uint64_t query);
  void read_log(std::uint64_t number, const std::string& request);
  void on_hang(const rendezvous::HangFound& found) override;
  void on_left_out(const LeftOut& node) override;
  void on_fault(const InjectedFault& fault) override { faults_.told(fault); }
  void on_suspects(const std::vector<hang::Suspect>& suspects);
  void on_all_started(const std::vector<int>& pids) override {
    output_.close_worker_ends();
    round_pids_ = pids;
    observers_.events().write_started(*world_, pids);
    if (phases_.current() == Phase::Spawn) enter(has_printed_ ? Phase::Running : Phase::Start);
  }
  void on_worker_ended(const WorkerEnd& end) override {
    observers_.write(WorkerEnded{.round = world_->round,
                                 .rank = world_->base_rank + end.local_rank,
                                 .local_rank = end.local_rank,
                                 .pid = end.pid,
                                 .status = end.status,
                                 .stopped_by_drun = end.stopped_by_us,
                                 .usage = end.usage});
  }
  void on_message(const rendezvous::CoordinatorMessage& message) override;
  void on_slow(const SlowRank& slow);
  void on_first_print(int local_rank);
  void report_times();
  NodeTimes times() const;
  void enter(Phase phase) {
    if (phases_.enter(phase, Clock::now())) observers_.write(PhaseBegan{phase});
  }
  void on_worker_failed(const WorkerEnd& end) override;
  bool holds_stop(const WorkerEnd& end) override;
  void take_stacks(const Evidence& evidence);
  void await_end_of_hold();
  void end_hold();
  Failure failure_with_tail(const WorkerEnd& end);
  void on_all_succeeded() override {
    faults_.end_round();
    stop_looking();
  }
  void on_waiting(const LeftoverList& leftovers, std::chrono::milliseconds time_left) override {
    log_waiting(log_, leftovers, time_left);
  }
  void on_all_gone(const Leftovers& leftovers) override;
  void on_terminate(int signal) override;
  void on_kill_now() override;
  void on_pass_on(int signal) override { workers_.pass_on(signal); }

  void on_interpreter_begun(int pid) override { workers_.spare(pid); }
  void on_interpreter_reaped() override { workers_.spared_ended(); }

  void watch_speed();
  void stop_looking() {
    speed_.stop();
    for (const int tool : watch_.stop()) workers_.disregard_group(tool);
    if (const int group = deadline_ ? deadline_->stop_asking() : 0) workers_.disregard_group(group);
  }
  void watch_deadline();
  void on_streams(int round, Result<std::vector<WorkerStreams>> streams);
  void begin_round(Result<void> prepared);
  Result<void> start_workers();
  void start_preloading();
  void report_unable(const Error& error);
  void give_up_on_console();
  bool is_without_success() const;
  void stop_kept();
  void read_failures();
  void settle_round(std::vector<rendezvous::SeenFailure> failures);
  void free_gpus(std::vector<rendezvous::SeenFailure> failures);
  void report_round(std::vector<rendezvous::SeenFailure> failures);
  NodePhase phase() const;
  NodeStatus status() const;

  const AgentSpec& spec_;
  asio::io_context io_{1};
  Progress progress_{io_, STDERR_FILENO, [this](std::string_view bytes) { output_.draw(bytes); }};
  Log log_;
  const Clock::time_point began_ = Clock::now();
  PhaseClock phases_{began_};
  bool has_printed_ = false;          // a worker of this round
  Clock::time_point spawned_{};       // this round's workers
  std::optional<int> slowest_start_;  // of this round: the rank that printed last
  std::chrono::milliseconds slowest_start_time_{0};
  std::optional<std::uint64_t> last_term_;  // of the coordinator that was joined last
  std::string stop_cause_;                  // of this round
  // Started by a kill request: limits the wait for a blocked console.
  asio::steady_timer give_up_{io_};
  std::optional<std::uint64_t> users_limit_ = raise_descriptor_limit();
  std::vector<std::string> inherited_;
  Output output_;
  Workers workers_;
  FaultInjector faults_;
  WorkerWatch watch_;
  SpeedWatch speed_;
  ProgressFiles progress_files_;
  WorkerKeyFile key_file_;
  GpuRelease gpus_;
  Signals signals_;
  WorkerStdin stdin_{io_, spec_.lifeline.has_value(),
                     [this](const std::string& line) { output_.send_to_launcher(line); }};
  std::optional<Lifeline> lifeline_;
  std::optional<DeadlineWatch> deadline_;
  std::optional<Preloader> preloader_;
  bool is_terminated_ = false;
  bool was_coordinator_ = false;
  std::optional<HostSlot> slot_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;
  std::optional<World> world_;
  std::vector<WorkerStreams> streams_;
  std::vector<WorkerEnd> failures_;  // of this round, in order
  std::vector<int> round_pids_;      // of this round's workers
  WorkProgress round_progress_;      // of this round, once it is over
  Round round_ = Round::None;
  bool is_stopping_ = false;
  bool is_killing_ = false;
  bool is_ending_ = false;
  std::size_t log_reads_ = 0;  // being read, off the loop
  std::string unusable_;       // why no further round can run on this node; empty: it can
  std::optional<Outcome> outcome_;
  Observers observers_;
  Clock::time_point round_began_;
  std::optional<Failure> last_failure_;
  // The first failure of the round, not reported yet: it only waited for other ranks, whose stacks
  // are being read.
  std::optional<WorkerEnd> held_;
  asio::steady_timer hold_{io_};
  std::string stacks_at_failure_;  // of this round
  std::vector<SlowRank> slow_;     // found by the coordinator
};

Agent::Agent(const AgentSpec& spec, const Log& log)
    : spec_(spec),
      log_(progress_.around(log.via([this](std::string_view line) { output_.say(line); }))),
      inherited_(to_lines(spec.worker.environment)),
      output_(io_, log_, spec.output, spec.host),
      workers_(io_, log_,
               WorkersSpec{.shutdown_timeout = spec.shutdown_timeout,
                           .leftovers = spec.leftovers,
                           .unkillable_timeout = spec.unkillable_timeout,
                           .most_at_once = static_cast<std::size_t>(spec.join.local_world_size)},
               *this),
      faults_(io_, log_, spec.faults,
              {.workers = workers_,
               .announce = [this](const InjectedFault& fault) { client_->report_fault(fault); },
               .on_recorded =
                   [this](const InjectedFault& fault) {
                     observers_.write(FaultInjectedAnywhere{fault});
                   },
               .host = spec.host,
               .first_round = spec.join.preflight ? 1 : 0}),
      watch_(io_, log_, spec, inherited_, output_),
      speed_(io_, spec.speed_window),
      progress_files_(io_, log_, spec.checkpoint_directory),
      gpus_(io_, log_, is_first_pid_namespace() ? kNvmlLibrary : ""),
      signals_(io_, spec.termination_signals, *this) {
  output_.watch_first_prints([this](int local_rank) { on_first_print(local_rank); });
}

Result<void> Agent::open() {
  if (auto prepared = output_.prepare(spec_.join.run_id); !prepared) return prepared.error();
  auto opened = observers_.open(
      io_, spec_, log_,
      {.status = [this] { return status(); },
       .send_query = [this](const rendezvous::Query& query) { client_->query(query); }});
  if (!opened) return opened;
  JoinSpec join = spec_.join;
  join.restart.diagnose = round_fault;
  join.make_stack_answers = make_merged_stacks;
  if (join.is_coordinator) {
    if (Result<void> seated = open_server(join); !seated) return seated;
  }
  if (join.elastic) {
    slot_ = HostSlot::take(spec_.host + "/" + join.run_id + "/" + meeting_place(join));
    join.slot = slot_->number();
  }
  rendezvous::Client::JoinLocally join_locally;
  if (server_ && join.is_coordinator && !join.seat)
    join_locally = [this](rendezvous::ControlLink::Listener& member) {
      return server_ ? server_->join_locally(member) : nullptr;
    };
  rendezvous::Client::Listener& listener = *this;
  client_ = std::make_unique<rendezvous::Client>(io_, std::move(join), spec_.host, log_, listener,
                                                 server_ ? nullptr : output_.line_listener(),
                                                 std::move(join_locally));
  return {};
}

// Opens the port at which this agent coordinates the job or may have to.
Result<void> Agent::open_server(JoinSpec& join) {
  auto on_leader = [this](const Endpoint& leader, std::uint64_t term) {
    client_->name_leader(leader, term);
  };
  auto on_trouble = [this](const std::string& reason) { client_->name_trouble(reason); };
  auto on_taken = [this](std::uint64_t peer, std::size_t cost) {
    if (server_) server_->lines_taken(peer, cost);
  };
  auto on_finished = [this] {
    server_.reset();
    end_if_ready();
  };
  auto server =
      take_seat(io_, join, log_, on_finished, on_leader, output_.log_sink(on_taken), on_trouble);
  if (!server) return server.error();
  server_ = *std::move(server);
  show_joining();
  return {};
}

AgentEnd Agent::run() {
  signals_.start();
  Signals::Listener& listener = *this;
  if (spec_.lifeline)
    lifeline_.emplace(io_, STDIN_FILENO, *spec_.lifeline, listener)
        .give_input_to(stdin_)
        .die_with_it(spec_.join.elastic.has_value())
        .start();
  if (Result<void> opened = open(); opened) {
    client_->start();
    watch_deadline();
    start_preloading();
    io_.run();
  } else {
    outcome_ = Outcome{.ending = NotRun{opened.error()}, .run_id = spec_.join.run_id};
  }
  assert(outcome_);  // the loop only ends after it is set
  if (workers_.has_kept()) keep_leftovers_at_exit();
  faults_.settle(*outcome_);
  observers_.write(JobEnded{*outcome_});
  leave_error_file(spec_, *outcome_, log_);
  const auto at_most =
      is_killing_ ? std::optional<std::chrono::milliseconds>(kDrainAtMost) : std::nullopt;
  observers_.events().finish(at_most);
  output_.finish(at_most);
  return AgentEnd{.outcome = *outcome_,
                  .events = observers_.events().take_kept(),
                  .phases = phases_.final_totals(Clock::now()),
                  .log_directory = output_.log_place(),
                  .was_coordinator = was_coordinator_,
                  .world = world_,
                  .unfinished_frame = output_.unfinished_frame()};
}

// Ends when nothing runs here. Lines from other nodes may still be on their way to the console.
void Agent::end_if_ready() {
  const bool is_running =
      round_ == Round::Opening || round_ == Round::Running || round_ == Round::Draining;
  if (!outcome_ || is_running || server_ || std::exchange(is_ending_, true)) return;
  // Kept processes hold their pipes open for as long as they run.
  output_.drain(workers_.has_kept() ? std::chrono::seconds(0) : kDrainAtMost, [this] { end(); });
  if (is_killing_) give_up_on_console();
}

// Stops everything that keeps the loop running.
void Agent::end() {
  progress_.stop();
  faults_.stop();
  client_->close();
  watch_.stop();
  speed_.stop();
  progress_files_.stop();
  gpus_.stop();
  observers_.close();
  signals_.stop();
  if (lifeline_) lifeline_->stop();
  if (deadline_) deadline_->stop();
  if (preloader_) preloader_->stop();
  stdin_.stop();
  give_up_.cancel();
  hold_.cancel();
}

// Call on each node that coordinates the job or may become the coordinator.
void Agent::watch_deadline() {
  if (!spec_.deadline || !server_) return;
  const auto may_ask = [this] { return phase() != NodePhase::Stopping; };
  deadline_.emplace(io_, log_, spec_, may_ask, [this](const rendezvous::JobDeadline& deadline) {
    if (server_) server_->set_deadline(deadline);
  });
  deadline_->start();
}

void Agent::on_world(const World& world) {
  progress_.stop();
  log_world(log_, spec_, world_, world);
  warn_of_ranks_not_there(log_, spec_, world_, world);
  world_ = world;
  round_began_ = Clock::now();
  observers_.write(RoundBegan{world});
  enter(Phase::Spawn);
  has_printed_ = false;
  slowest_start_.reset();
  slowest_start_time_ = {};
  stop_cause_.clear();
  failures_.clear();
  held_.reset();
  stacks_at_failure_.clear();
  round_pids_.clear();
  round_progress_ = {};
  is_stopping_ = false;
  if (!unusable_.empty()) return report_unable(Error{ErrorCode::System, unusable_});
  round_ = Round::Opening;
  output_.open_round(
      world, [this, round = world.round](auto streams) { on_streams(round, std::move(streams)); });
}

// The round may have been stopped meanwhile. on_all_started() closes the workers' ends of a round
// that has begun.
void Agent::on_streams(int round, Result<std::vector<WorkerStreams>> streams) {
  if (round_ != Round::Opening || world_->round != round) return;
  if (!streams) return begin_round(streams.error());
  if (is_stopping_ || outcome_) return begin_round({});
  streams_ = *std::move(streams);
  const Result<void> prepared = watch_.prepare(*world_);
  if (!prepared || !preloader_ || world_->is_preflight) return begin_round(prepared);
  preloader_->when_imported([this, round](const Result<void>& imported) {
    if (round_ == Round::Opening && world_->round == round) begin_round(imported);
  });
}

void Agent::begin_round(Result<void> prepared) {
  const int round = world_->round;
  Result<void> started = std::move(prepared);
  const bool is_wanted = !is_stopping_ && !outcome_;
  spawned_ = Clock::now();
  if (started && is_wanted) started = start_workers();
  if (started && is_wanted) return;
  output_.close_worker_ends();
  if (!is_wanted) {
    round_ = Round::Over;
    if (outcome_) return end_if_ready();
    client_->report_stopped(round, {});
  } else {
    report_unable(started.error());
  }
}

Result<void> Agent::start_workers() {
  const WorkerSpec worker = world_->is_preflight ? probe_of(spec_) : spec_.worker;
  std::vector<Command> commands;
  commands.reserve(streams_.size());
  if (Result<void> made = key_file_.prepare(spec_.join, world_->round); !made) return made.error();
  if (!world_->is_preflight) progress_files_.begin_round(world_->round, world_->local_world_size);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    const Result<int> standard_input = stdin_.open(worker.stdin_source, *world_, local_rank);
    if (!standard_input) return standard_input.error();
    commands.push_back(Command{
        .argv = wrapped_argv(worker, *world_, local_rank),
        .inherited = inherited_,
        .environment = own_environment(worker, *world_, local_rank, streams_[i].error_file,
                                       {.heartbeat_file = watch_.heartbeat_file(i),
                                        .ras_address = watch_.ras_address(),
                                        .progress_file = progress_files_.file(i),
                                        .key_file = key_file_.path(),
                                        .flight_recorder = watch_.flight_environment(local_rank)}),
        .stdin_fd = *standard_input,
        .stdout_fd = streams_[i].stdout_fd,
        .stderr_fd = streams_[i].stderr_fd,
        .descriptor_limit = users_limit_,
        .placement = placement_of(worker, local_rank),
    });
  }
  round_ = Round::Running;
  if (world_->is_preflight) show_preflight();
  const bool is_warm = preloader_ && !world_->is_preflight;
  workers_.start(std::move(commands), is_warm ? &*preloader_ : nullptr);
  faults_.begin_round(*world_);
  watch_.start(
      *world_, [this] { return workers_.pids(); },
      [this](const auto& suspects) { on_suspects(suspects); });
  watch_speed();
  return {};
}

void Agent::watch_speed() {
  SpeedWatch::Sources sources{
      .pids = [this] { return workers_.pids(); },
      .calls = [this](std::size_t local_rank) { return watch_.call_times(local_rank); },
      .step = [this](std::size_t local_rank) { return progress_files_.step(local_rank); },
      .report = [this](const NodeSpeed& speed) { client_->report_speed(world_->round, speed); }};
  if (watch_.can_ask_nccl())
    sources.ask_nccl = [this](auto on_positions) { watch_.ask_nccl(std::move(on_positions)); };
  speed_.start(*world_, round_began_, std::move(sources));
}

// Also on standby nodes, so that their first round starts warm.
void Agent::start_preloading() {
  const WorkerSpec& worker = spec_.worker;
  const auto program = preload::python_program(worker_argv(worker, 0));
  if (worker.preload.modules.empty() || !program) return;
  std::vector<EnvironmentEntry> environment;
  if (const ProgramSpec* first = program_of(worker, 0)) environment = first->environment;
  const WorkerPlacement* place = placement_of(worker, 0);
  if (place != nullptr && place->omp_threads)
    environment.emplace_back("OMP_NUM_THREADS", std::to_string(*place->omp_threads));
  Preloader::Listener& listener = *this;
  preloader_.emplace(io_, log_,
                     PreloaderSpec{.preload = worker.preload,
                                   .start = {.program = *program, .environment = environment},
                                   .inherited = inherited_,
                                   .descriptor_limit = users_limit_},
                     listener);
  preloader_->start();
}

// This node cannot run the round (full disk, no descriptors left). Reports the reason to the
// coordinator, which tells all nodes.
void Agent::report_unable(const Error& error) {
  round_ = Round::Over;
  const rendezvous::SeenFailure failure{unable_failure(spec_, *world_, error),
                                        std::chrono::steady_clock::now()};
  client_->report_failure(failure);
  client_->report_stopped(world_->round, {failure});
  log_.error("cannot start this node's workers: " + error.message);
}

void Agent::report_times() { client_->report_times(times()); }

NodeTimes Agent::times() const {
  return {.phases = phases_.totals(Clock::now()),
          .current = phases_.current(),
          .slowest_start = slowest_start_,
          .slowest_start_time = slowest_start_time_};
}

void Agent::on_first_print(int local_rank) {
  if (!world_ || round_ == Round::Over) return;
  slowest_start_ = world_->base_rank + local_rank;
  slowest_start_time_ =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - spawned_);
  observers_.write(WorkerAlive{
      .round = world_->round, .rank = world_->base_rank + local_rank, .local_rank = local_rank});
  has_printed_ = true;
  if (phases_.current() == Phase::Start) enter(Phase::Running);
}

void Agent::on_message(const rendezvous::CoordinatorMessage& message) {
  if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message)) {
    if (last_term_ != welcome->term) observers_.write(CoordinatorJoined{welcome->term});
    last_term_ = welcome->term;
  } else if (const auto* waiting = std::get_if<rendezvous::Waiting>(&message)) {
    const bool is_between = round_ == Round::None || round_ == Round::Over;
    if (is_between && waiting->is_spare) enter(Phase::Standby);
  } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
    if (world_ && stop->round == world_->round) stop_cause_ = stop->cause;
  } else if (const auto* found = std::get_if<rendezvous::SlowFound>(&message)) {
    on_slow(found->slow);
  }
}

void Agent::on_node_query(const rendezvous::NodeQuery& query) {
  switch (query.kind) {
    case rendezvous::QueryKind::Status:
      report_times();
      return client_->answer({query.number, encode_summary(summary_of(status()))});
    case rendezvous::QueryKind::Stacks:
      return read_stacks(query.number);
    case rendezvous::QueryKind::Log:
      return read_log(query.number, query.question);
  }
}

void Agent::read_stacks(std::uint64_t query) {
  const auto answer = [this, query](const Evidence& evidence) {
    client_->answer({query, encode_evidence(evidence)});
  };
  if (phase() == NodePhase::Running) return watch_.look(answer);
  answer({.notes = {spec_.host + ": its workers have ended, or are being stopped"}});
}

// Read in the log directory's thread: a file system may hang.
void Agent::read_log(std::uint64_t number, const std::string& request) {
  LogPart part{.round = world_ ? world_->round : 0};
  const auto refuse = [&](const std::string& reason) {
    part.note = spec_.host + ": " + reason;
    client_->answer({number, log_answer(part)});
  };
  const std::optional<LogQuery> asked = parse_log_request(request);
  if (!asked) return refuse("malformed request");
  const LogQuery& query = *asked;
  const int round = query.round.value_or(part.round);
  if (round > part.round) return refuse("round " + std::to_string(round) + " has not begun");
  const std::optional<RankLog> log = output_.rank_log({query.rank, round}, query.is_stderr);
  if (!log) return refuse("rank " + std::to_string(query.rank) + " writes no such log file here");
  if (log_reads_ >= kMostLogReads) return refuse("too many ask at the same time");
  ++log_reads_;
  part.label = log->label;
  const auto read = std::make_shared<LogPart>(std::move(part));
  output_.run_off_loop(
      [read, path = log->path, offset = query.offset] {
        const FilePart file = read_part_of(path, offset, kMostLogPartBytes);
        read->size_bytes = file.size_bytes;
        read->text = file.text;
        if (!file.is_read) read->note = "cannot read " + path;
      },
      [this, number, read](bool has_run) {
        --log_reads_;
        if (has_run) client_->answer({number, log_answer(*read)});
      });
}

void Agent::on_suspects(const std::vector<hang::Suspect>& suspects) {
  std::vector<Failure> failures = hung_failures(spec_, *world_, suspects, workers_.pids());
  for (const Failure& failure : failures) observers_.write(HangSuspectedHere{failure});
  client_->report_suspicion(world_->round, watch_.interval(), std::move(failures));
}

void Agent::on_hang(const rendezvous::HangFound& found) {
  const Evidence evidence = decode_evidence(found.evidence).value_or(Evidence{});
  observers_.write(HangFoundAnywhere{found.round, found.cause, evidence});
  log_hang(log_, found.cause, evidence);
}

// A coordinator that takes over finds slow ranks again.
void Agent::on_slow(const SlowRank& slow) {
  const auto is_same = [&slow](const SlowRank& other) {
    return other.host == slow.host && other.rank == slow.rank;
  };
  if (std::any_of(slow_.begin(), slow_.end(), is_same) || slow_.size() >= kMostSlowRanks) return;
  slow_.push_back(slow);
  observers_.write(SlowRankFound{slow});
  // Not on the console of every node.
  if (world_ && world_->node_rank == 0) log_.warning(text_of(slow));
}

void Agent::on_left_out(const LeftOut& node) {
  observers_.write(NodeLeftOut{node});
  log_left_out(log_, node);
}

// Brief, with the last lines of its stderr as far as they are here.
Failure Agent::failure_with_tail(const WorkerEnd& end) {
  Failure failure = brief_failure(spec_, *world_, end);
  if (const auto tail = output_.stderr_tail(end.local_rank)) failure.stderr_tail = *tail;
  return failure;
}

// A collective that times out ends a rank that did nothing wrong. The stacks of the ranks that
// still run show which one it waited for. A rank that loses another one may be seen before the
// other: its agent waits for a moment for the report about that one.
bool Agent::holds_stop(const WorkerEnd& end) {
  const bool is_first = failures_.empty() && !held_;
  if (!is_first || is_stopping_ || is_terminated_ || outcome_ || !world_ || world_->is_preflight ||
      world_->world_size < 2)
    return false;
  const Failure failure = failure_with_tail(end);
  if (!has_only_waited(failure) && !has_lost_peer(failure)) return false;
  held_ = end;
  return true;
}

void Agent::on_worker_failed(const WorkerEnd& seen) {
  const bool is_held = held_ && held_->local_rank == seen.local_rank && failures_.empty();
  const Failure with_tail = held_ ? failure_with_tail(seen) : Failure();
  const bool has_waited = held_ && has_only_waited(with_tail);
  const bool adds_to_held = held_ && !is_held && (has_waited || has_lost_peer(with_tail));
  if (!is_held && !adds_to_held) stop_looking();
  const WorkerEnd end = faults_.as_injected(seen);
  faults_.end_round();
  Failure failure = brief_failure(spec_, *world_, end);
  faults_.mark(failure);
  failures_.push_back(end);
  last_failure_ = failure;
  observers_.write(WorkerFailed{failure});
  enter(Phase::Stopping);
  log_failure(log_, spec_, *world_, failure);
  if (adds_to_held) return;
  if (!is_held) {
    client_->report_failure({failure, end.seen});
    return end_hold();
  }
  if (has_waited) client_->query({.number = kOwnQuery, .kind = rendezvous::QueryKind::Stacks});
  hold_.expires_after(has_waited ? kMostHold : kPeerHold);
  await_end_of_hold();
}

// A rank that is in no collective may just have left one with an error, which shows more than its
// stack.
void Agent::take_stacks(const Evidence& evidence) {
  if (!held_) return;
  if (!evidence.groups.empty()) stacks_at_failure_ = stacks_at_failure(evidence);
  RankRanges failed;
  for (const WorkerEnd& end : failures_) add_rank(failed, world_->base_rank + end.local_rank);
  if (is_every_rank_in_collective(evidence, failed)) return end_hold();
  hold_.expires_at(std::min(hold_.expiry(), Clock::now() + kOwnErrorHold));
  await_end_of_hold();
}

void Agent::await_end_of_hold() {
  hold_.async_wait([this](const error_code& ec) {
    if (!ec) end_hold();
  });
}

// The failure is reported once the stacks are there, or after kMostHold.
void Agent::end_hold() {
  if (!held_) return;
  hold_.cancel();
  const WorkerEnd end = *std::exchange(held_, std::nullopt);
  stop_looking();
  if (world_ && !is_stopping_ && !outcome_)
    client_->report_failure({brief_failure(spec_, *world_, end), end.seen});
  if (round_ == Round::Running) workers_.stop();
}

void Agent::on_stop(int round, const std::optional<rendezvous::StopNotice>& notice) {
  if (!world_ || round != world_->round) return;
  is_stopping_ = true;
  end_hold();
  if (preloader_) preloader_->stop_waiting();
  faults_.end_round();
  stop_looking();
  observers_.write(RoundStopping{round, stop_cause_});
  if (round_ != Round::Over) enter(Phase::Stopping);
  if (round_ == Round::Running && notice)
    return workers_.stop_after_notice(notice->signal, notice->time);
  if (round_ == Round::Running) return workers_.stop();
  if (round_ != Round::Over) return;
  if (workers_.has_kept()) return stop_kept();
  report_times();
  client_->report_stopped(round, {}, unusable_);
}

// Leftover processes are kept only if the whole job succeeds.
bool Agent::is_without_success() const {
  return is_stopping_ || (outcome_ && !std::holds_alternative<Succeeded>(outcome_->ending));
}

// on_all_gone() follows again.
void Agent::stop_kept() {
  round_ = Round::Running;
  workers_.stop();
}

void Agent::on_all_gone(const Leftovers& leftovers) {
  log_leftovers(log_, leftovers);
  if (unusable_.empty()) unusable_ = unusable_reason(leftovers);
  for (const Leftover& process : leftovers.unkillable.listed) expect_unkillable(process.pid);
  round_ = Round::Draining;
  // Kept processes hold their pipes open, and their output is shown until drun exits.
  if (workers_.has_kept() && !spec_.output.gathers)
    return asio::post(io_, [this] { read_failures(); });
  output_.drain(
      kDrainAtMost, [this] { read_failures(); }, Output::Until::Queued);
  if (is_killing_) give_up_on_console();
}

// Drops the output that the console has not taken a second after the kill.
void Agent::give_up_on_console() {
  give_up_.expires_after(kDrainAtMost);
  give_up_.async_wait([this](const error_code& ec) {
    if (ec) return;
    const bool is_waiting =
        round_ == Round::Opening || round_ == Round::Draining || is_ending_ || output_.is_held_up();
    if (is_waiting && round_ != Round::Running) return output_.stop();
    give_up_on_console();  // other nodes may still have something to say
  });
}

void Agent::on_kill_now() {
  is_killing_ = true;
  workers_.kill_now();
  if (round_ != Round::Running) give_up_on_console();
}

// Reads the failures' error files and stderr files off the loop, because the file system can block.
void Agent::read_failures() {
  if (failures_.empty()) return settle_round({});
  std::vector<rendezvous::SeenFailure> brief;
  for (const WorkerEnd& end : failures_)
    brief.push_back({brief_failure(spec_, *world_, end), end.seen});
  read_full_failures(std::move(brief), streams_, output_,
                     [this](auto failures) { settle_round(std::move(failures)); });
}

// Collects the facts for a restart that the coordinator needs besides the failures.
void Agent::settle_round(std::vector<rendezvous::SeenFailure> failures) {
  const bool may_go_on =
      !outcome_ && !is_terminated_ && !world_->is_preflight && (is_stopping_ || !failures_.empty());
  if (!may_go_on) return report_round(std::move(failures));
  progress_files_.collect([this, failures](const WorkProgress& progress) {
    round_progress_ = progress;
    free_gpus(failures);
  });
}

void Agent::free_gpus(std::vector<rendezvous::SeenFailure> failures) {
  const bool may_restart = spec_.join.max_restarts > 0 || spec_.join.elastic;
  if (!may_restart || outcome_ || is_terminated_) return report_round(std::move(failures));
  gpus_.wait(round_pids_, spec_.unkillable_timeout, [this, failures](const std::string& unfreed) {
    if (unusable_.empty()) unusable_ = unfreed;
    report_round(failures);
  });
}

void Agent::report_round(std::vector<rendezvous::SeenFailure> failures) {
  for (rendezvous::SeenFailure& each : failures)
    each.failure.traceback =
        with_kernel_log(each.failure.traceback, watch_.gpu_faults(each.failure.pid, round_pids_));
  if (!failures.empty() && !stacks_at_failure_.empty())
    failures.front().failure.traceback =
        with_stacks(failures.front().failure.traceback, stacks_at_failure_);
  if (workers_.has_kept() && is_without_success()) return stop_kept();
  round_ = Round::Over;
  const bool has_succeeded = failures_.empty() && !is_stopping_;
  RoundEnded ended{.round = world_->round, .has_succeeded = has_succeeded};
  for (const rendezvous::SeenFailure& failure : failures) ended.failures.push_back(failure.failure);
  observers_.write(ended);
  if (outcome_) return end_if_ready();
  enter(has_succeeded ? Phase::Waiting : Phase::Restarting);
  show_joining();
  report_times();
  if (has_succeeded) return client_->report_success(world_->round);
  client_->report_stopped(world_->round, std::move(failures), unusable_, round_progress_);
}

void Agent::on_terminate(int signal) {
  if (std::exchange(is_terminated_, true)) return;  // a signal, and the lifeline
  is_stopping_ = true;
  end_hold();
  if (preloader_) preloader_->stop_waiting();
  faults_.end_round();
  stop_looking();
  gpus_.stop();
  client_->interrupt(signal);
  if (round_ == Round::Running) {
    workers_.stop(signal);
    enter(Phase::Stopping);
  }
  observers_.write(SignalCame{signal});
  log_.info("got " + signal_name(signal) +
            (spec_.join.elastic ? ", leaving the job" : ", ending the job"));
}

void Agent::on_outcome(const Outcome& outcome) {
  outcome_ = outcome;
  was_coordinator_ = server_ && server_->is_leading();
  if (server_ && !server_->coordinator_ended()) server_.reset();
  if (preloader_) preloader_->stop_waiting();
  const bool is_stopped = std::holds_alternative<Interrupted>(outcome.ending) ||
                          std::holds_alternative<Preempted>(outcome.ending);
  if (is_stopped && world_) log_timeouts(log_, *world_, output_);
  stop_looking();
  gpus_.stop();
  progress_files_.stop();
  if (round_ == Round::Running) workers_.stop();
  if (round_ == Round::Over && workers_.has_kept() && is_without_success()) stop_kept();
  end_if_ready();
}

NodePhase Agent::phase() const {
  if (round_ == Round::None || round_ == Round::Opening) return NodePhase::Joining;
  if (round_ == Round::Over) return NodePhase::Waiting;
  const bool has_failed = !failures_.empty() && !held_;
  const bool is_stopping = is_stopping_ || has_failed || round_ == Round::Draining;
  return is_stopping ? NodePhase::Stopping : NodePhase::Running;
}

NodeStatus Agent::status() const {
  return {
      .run_id = spec_.join.run_id,
      .host = spec_.host,
      .pid = static_cast<int>(getpid()),
      .parent_pid = static_cast<int>(getppid()),
      .command = spec_.worker.argv,
      .arguments_at = spec_.worker.program_arguments_at,
      .programs = spec_.worker.programs,
      .node_count = spec_.join.node_count,
      .phase = phase(),
      .world = world_,
      .up = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - began_),
      .round_up = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - round_began_),
      .times = times(),
      .pids = world_ ? workers_.pids() : std::vector<int>(),
      .workers_failed = static_cast<int>(failures_.size()),
      .last_failure = last_failure_,
      .log_directory = output_.log_place(),
      .logs = world_ ? output_.worker_logs(world_->round) : std::vector<WorkerLogs>(),
      .job = server_ ? server_->facts() : std::nullopt,
  };
}

}  // namespace

AgentEnd run_agent(const AgentSpec& spec, const Log& log) {
  Agent agent(spec, log);
  return agent.run();
}

}  // namespace drun::agent
