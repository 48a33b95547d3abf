#include "agent/supervise/agent.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/diagnosis/diagnosis.h"
#include "agent/hang/hang_verdict.h"
#include "agent/output/output.h"
#include "agent/output/progress.h"
#include "agent/process/guardian.h"
#include "agent/process/lifeline.h"
#include "agent/process/signals.h"
#include "agent/stacks/evidence.h"
#include "agent/status/log_query.h"
#include "agent/status/node_status.h"
#include "agent/supervise/coordinator_seat.h"
#include "agent/supervise/deadline_watch.h"
#include "agent/supervise/failure_record.h"
#include "agent/supervise/observers.h"
#include "agent/supervise/round_log.h"
#include "agent/supervise/round_runner.h"
#include "agent/supervise/supervision.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
#include "rendezvous/member/client.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/server/server.h"

namespace drun::agent {
namespace {

// Number of this agent's own query of stacks in round 0; those of later rounds count down. Queries
// of local sockets count from 1.
constexpr std::uint64_t kOwnQuery = std::numeric_limits<std::uint64_t>::max();
// When no worker is left, only kept and unkillable processes can still hold a pipe open.
constexpr std::chrono::seconds kFlushAtMost{1};

using Clock = std::chrono::steady_clock;

bool has_succeeded(const Outcome& outcome) {
  return std::holds_alternative<Succeeded>(outcome.ending);
}

// The limits of the waits that follow the loop's end. A termination signal ends all of them soon.
// Destroy it after the io_context has run its last handler.
class LastWaits final : Signals::Listener {
 public:
  LastWaits(asio::io_context& io, const std::vector<int>& termination_signals)
      : io_(io), signals_(io, termination_signals, *this) {
    signals_.start();
  }
  // Also hears the launcher of a remote agent, as `stopped` did until now.
  void listen_after(const Lifeline& stopped) {
    Signals::Listener& listener = *this;
    if (!stopped.has_ended())
      lifeline_.emplace(io_, STDIN_FILENO, "", listener).continue_after(stopped).start();
  }
  void limit_files(Clock::time_point until) {
    files_until_ = std::min(until, console_until_.value_or(until));
  }
  void end_soon() { files_until_ = console_until_ = Clock::now() + kFlushAtMost; }
  const std::optional<Clock::time_point>& files_until() const { return files_until_; }
  const std::optional<Clock::time_point>& console_until() const { return console_until_; }

 private:
  void on_terminate(int) override { end_soon(); }
  void on_kill_now() override {}
  void on_pass_on(int) override {}

  asio::io_context& io_;
  Signals signals_;
  std::optional<Lifeline> lifeline_;
  std::optional<Clock::time_point> files_until_;
  std::optional<Clock::time_point> console_until_;
};

class Agent final : rendezvous::Client::Listener, RoundRunner::Listener, Signals::Listener {
 public:
  Agent(const AgentSpec& spec, const Log& log);
  AgentEnd run();

 private:
  Result<void> open();
  Result<void> open_server(JoinSpec& join);
  void watch_deadline();
  void finish_writing();
  void write_error_file(const LastWaits& waits);

  // Events of the state machine. Those that an action causes at once follow its other actions.
  void on_event(supervision::Event event) override;
  void on_world(const World& world) override;
  void on_stop(int round, const std::optional<rendezvous::StopNotice>& notice) override;
  void on_outcome(const Outcome& outcome) override;
  void on_query_result(const rendezvous::QueryResult& result) override;
  void on_terminate(int signal) override { on_event(supervision::TerminateSignal{signal}); }
  void on_kill_now() override { on_event(supervision::KillWanted{}); }

  // Its actions. Those that are not listed here concern only the workers.
  template <typename WorkerAction>
  void perform(const WorkerAction& action) {
    runner_.perform(action);
  }
  void perform(const supervision::StartWorkers& start);
  void perform(const supervision::ReportUnable& unable);
  void perform(const supervision::StopLooking& looking);
  void perform(const supervision::AskForStacks&);
  void perform(const supervision::ReportFailure& report);
  void perform(const supervision::NoteStop&) { observers_.note_stop(); }
  void perform(const supervision::NoteRoundEnd& end);
  void perform(const supervision::EnterPhase& phase) { observers_.enter(phase.phase); }
  void perform(const supervision::ReportSuccess&);
  void perform(const supervision::ReportStopped&);
  void perform(const supervision::InterruptJob& interrupt);
  void perform(const supervision::FlushOutput&);
  void perform(const supervision::DropOutput&) { output_.stop(); }
  void perform(const supervision::End&);

  // Events that do not change the state: for observers, queries and the log.
  void on_message(const rendezvous::CoordinatorMessage& message) override {
    observers_.on_message(message, supervision::is_between_rounds(state_));
  }
  void on_node_query(const rendezvous::NodeQuery& query) override;
  void on_hang(const rendezvous::HangFound& found) override;
  void on_left_out(const LeftOut& node) override;
  void on_fault(const InjectedFault& fault) override { runner_.faults().on_announced(fault); }
  void on_fault_due(const InjectedFault& fault) override { client_->report_fault(fault); }
  void on_speed(const NodeSpeed& speed) override { client_->report_speed(world_->round, speed); }
  void on_suspects(std::chrono::milliseconds interval, std::vector<Failure> suspects) override {
    client_->report_suspicion(world_->round, interval, std::move(suspects));
  }
  void on_pass_on(int signal) override { runner_.workers().pass_on(signal); }
  void report_times() { client_->report_times(observers_.times()); }
  void show_joining();
  NodeStatus status() const;

  const AgentSpec& spec_;
  asio::io_context io_{1};
  std::optional<LastWaits> last_waits_;
  Progress progress_{io_, STDERR_FILENO, [this](std::string_view bytes) { output_.draw(bytes); }};
  Log log_;
  supervision::State state_;
  std::deque<supervision::Event> events_;  // the first one is being handled
  rendezvous::DeadlineTimer timer_{io_};
  Output output_;
  Observers observers_;
  RoundRunner runner_;
  Signals signals_;
  LogReader log_reader_;
  std::optional<Lifeline> lifeline_;
  std::optional<DeadlineWatch> deadline_;
  std::optional<HostSlot> slot_;
  std::unique_ptr<rendezvous::Server> server_;
  bool was_coordinator_ = false;
  std::unique_ptr<rendezvous::Client> client_;
  std::optional<World> world_;  // of the latest round
  std::optional<Outcome> outcome_;
  std::vector<ReportedTimeout> timeouts_;  // before the stop
};

Agent::Agent(const AgentSpec& spec, const Log& log)
    : spec_(spec),
      log_(progress_.around(log.via([this](std::string_view line) { output_.say(line); }))),
      state_{.may_restart = spec.join.max_restarts > 0 || spec.join.elastic},
      output_(io_, log_, spec.output, spec.host),
      runner_({.io = io_,
               .log = log_,
               .spec = spec,
               .output = output_,
               .observers = observers_,
               .state = state_},
              *this),
      signals_(io_, spec.termination_signals, *this),
      log_reader_(output_, spec.host) {
  if (::isatty(STDIN_FILENO) != 0) output_.show_prompts(spec.worker.stdin_source);
  output_.watch_first_prints([this](int local_rank) {
    if (!supervision::is_between_rounds(state_)) observers_.note_first_print(local_rank);
  });
}

Result<void> Agent::open() {
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
    on_event(supervision::ServerFinished{});
  };
  auto server =
      take_seat(io_, join, log_, on_finished, on_leader, output_.log_sink(on_taken), on_trouble);
  if (!server) return server.error();
  server_ = *std::move(server);
  show_joining();
  return {};
}

AgentEnd Agent::run() {
  // The log directory may be on a file system that hangs: a signal ends this process meanwhile, and
  // no worker runs yet.
  Result<void> opened = output_.prepare(spec_.join.run_id);
  signals_.start();
  Signals::Listener& listener = *this;
  if (spec_.lifeline)
    lifeline_.emplace(io_, STDIN_FILENO, *spec_.lifeline, listener)
        .give_input_to(runner_.standard_input())
        .kill_at_end(spec_.join.elastic.has_value())
        .start();
  if (opened) opened = open();
  if (opened) {
    client_->start();
    watch_deadline();
    runner_.start_preloading();  // also on standby nodes, so that their first round starts warm
    io_.run();
  } else {
    outcome_ = Outcome{.ending = NotRun{opened.error()}, .run_id = spec_.join.run_id};
    // Without a client, neither a signal nor a query can be passed on.
    if (lifeline_) lifeline_->stop();
    observers_.close();
  }
  assert(outcome_);  // the loop only ends after it is set
  if (runner_.workers().has_kept()) keep_leftovers_at_exit();
  runner_.faults().settle(*outcome_);
  observers_.write(JobEnded{*outcome_, timeouts_});
  finish_writing();
  return AgentEnd{.outcome = *outcome_,
                  .events = observers_.events().take_kept(),
                  .phases = observers_.final_times(),
                  .log_directory = output_.log_place(),
                  .was_coordinator = was_coordinator_,
                  .world = world_,
                  .timeouts = timeouts_,
                  .has_lost_stdout = output_.has_lost_stdout(),
                  .unfinished_frame = output_.unfinished_frame()};
}

void Agent::finish_writing() {
  signals_.stop();
  LastWaits& waits = last_waits_.emplace(io_, spec_.termination_signals);
  if (lifeline_) waits.listen_after(*lifeline_);
  if (state_.interrupt == supervision::Interrupt::Kill) waits.end_soon();
  // The report of a failed job must not wait for a file system that hangs.
  const bool has_limits = !has_succeeded(*outcome_);
  if (has_limits) waits.limit_files(Clock::now() + kStuckAfter);
  write_error_file(waits);
  const auto waits_since = observers_.events().waits_since();
  if (has_limits) waits.limit_files(waits_since.value_or(Clock::now()) + kStuckAfter);
  observers_.events().finish(waits.files_until());
  output_.finish(waits.console_until());
}

void Agent::write_error_file(const LastWaits& waits) {
  if (spec_.error_file.empty() || has_succeeded(*outcome_)) return;
  const auto* failed = std::get_if<WorkersFailed>(&outcome_->ending);
  const std::string root_file =
      failed != nullptr ? runner_.failures().error_file_of(failed->failures.front()) : "";
  FileWriter writer(io_, log_, {});
  auto written = std::make_shared<Result<void>>();
  writer.run([spec = spec_, outcome = *outcome_, root_file,
              written] { *written = leave_error_file(spec, outcome, root_file); },
             [this, written](bool has_run) {
               if (has_run && !*written) log_.warning(written->error().message);
             });
  run_until(
      io_, [&writer] { return writer.is_idle(); }, waits.files_until());
  if (!writer.is_idle())
    log_.warning("the error file is not written: the file system does not answer path=" +
                 spec_.error_file);
}

// Call on each node that coordinates the job or may become the coordinator.
void Agent::watch_deadline() {
  if (!spec_.deadline || !server_) return;
  const auto may_ask = [this] { return supervision::node_phase(state_) != NodePhase::Stopping; };
  deadline_.emplace(io_, log_, spec_, may_ask, [this](const rendezvous::JobDeadline& deadline) {
    if (server_) server_->set_deadline(deadline);
  });
  deadline_->start();
}

void Agent::on_event(supervision::Event event) {
  events_.push_back(std::move(event));
  if (events_.size() > 1) return;
  for (; !events_.empty(); events_.pop_front()) {
    for (const supervision::Action& action : step(state_, events_.front(), Clock::now()))
      std::visit([this](const auto& each) { perform(each); }, action);
  }
  timer_.set(deadline(state_),
             [this] { on_event(supervision::DeadlinePassed{output_.is_held_up()}); });
}

// --- A round

void Agent::on_world(const World& world) {
  progress_.stop();
  log_world(log_, spec_, world_, world);
  warn_of_ranks_not_there(log_, spec_, world_, world);
  world_ = world;
  observers_.begin_round(world);
  runner_.begin_round(world);
  on_event(supervision::WorldArrived{
      .round = world.round, .world_size = world.world_size, .is_preflight = world.is_preflight});
}

void Agent::perform(const supervision::StartWorkers& start) {
  if (world_->is_preflight && server_)
    progress_.start([this] {
      return preflight_text(*world_) + "; " + rendezvous::duration_text(observers_.round_up());
    });
  runner_.perform(start);
}

void Agent::perform(const supervision::ReportUnable& unable) {
  progress_.stop();
  const rendezvous::SeenFailure failure{unable_failure(spec_, *world_, unable.error), Clock::now()};
  client_->report_failure(failure);
  client_->report_stopped(world_->round, {failure});
  log_.error("cannot start this node's workers: " + unable.error.message);
}

void Agent::perform(const supervision::ReportFailure& report) {
  rendezvous::SeenFailure seen = runner_.failures().brief(report.local_rank);
  runner_.faults().mark(seen.failure);
  client_->report_failure(std::move(seen));
}

void Agent::perform(const supervision::AskForStacks&) {
  client_->query({.number = kOwnQuery - static_cast<std::uint64_t>(world_->round),
                  .kind = rendezvous::QueryKind::Stacks});
}

void Agent::on_query_result(const rendezvous::QueryResult& result) {
  const std::uint64_t round = kOwnQuery - result.number;
  if (!world_ || round > static_cast<std::uint64_t>(world_->round))
    return observers_.answer(result);
  if (!supervision::is_holding(state_)) return;
  const Evidence evidence = decode_evidence(result.answer).value_or(Evidence{});
  on_event(supervision::StacksArrived{.round = static_cast<int>(round),
                                      .show = runner_.failures().add_stacks(evidence)});
}

void Agent::on_stop(int round, const std::optional<rendezvous::StopNotice>& notice) {
  supervision::StopWanted stop{.round = round};
  if (notice) stop.signal = notice->signal;
  if (notice) stop.notice = notice->time;
  on_event(stop);
}

void Agent::perform(const supervision::StopLooking& looking) {
  runner_.perform(looking);
  if (const int scontrol = deadline_ ? deadline_->stop_asking() : 0)
    runner_.workers().disregard_group(scontrol);
}

void Agent::perform(const supervision::NoteRoundEnd& end) {
  runner_.complete_failures();
  observers_.note_round_end(end.has_succeeded, runner_.failures().full());
  if (!outcome_) show_joining();
}

void Agent::perform(const supervision::ReportSuccess&) {
  report_times();
  client_->report_success(world_->round);
}

void Agent::perform(const supervision::ReportStopped&) {
  report_times();
  client_->report_stopped(world_->round, runner_.failures().full(), state_.unusable,
                          runner_.progress());
}

// --- The end of the job

void Agent::perform(const supervision::InterruptJob& interrupt) {
  client_->interrupt(interrupt.signal);
  observers_.write(SignalCame{interrupt.signal});
  log_.info("got " + signal_name(interrupt.signal) +
            (spec_.join.elastic ? ", leaving the job" : ", ending the job"));
}

void Agent::on_outcome(const Outcome& outcome) {
  outcome_ = outcome;
  was_coordinator_ = server_ && server_->is_leading();
  if (server_ && !server_->coordinator_ended()) server_.reset();
  const bool is_stopped = std::holds_alternative<Interrupted>(outcome.ending) ||
                          std::holds_alternative<Preempted>(outcome.ending);
  if (is_stopped && world_) log_timeouts(log_, timeouts_ = reported_timeouts(*world_, output_));
  on_event(supervision::OutcomeArrived{.has_succeeded = has_succeeded(outcome),
                                       .has_server = server_ != nullptr});
}

void Agent::perform(const supervision::FlushOutput&) {
  // Kept processes hold their pipes open for as long as they run.
  // The report of a failed job must not wait for a log directory that hangs.
  output_.drain(
      state_.has_kept ? std::chrono::seconds(0) : kFlushAtMost,
      [this] { on_event(supervision::OutputFlushed{}); },
      has_succeeded(*outcome_) ? Output::Until::Written : Output::Until::WrittenOrStuck);
}

// Stops everything that keeps the loop running.
void Agent::perform(const supervision::End&) {
  progress_.stop();
  client_->close();
  runner_.stop();
  observers_.close();
  observers_.events().let_loop_end();
  signals_.stop();
  if (lifeline_) lifeline_->stop();
  if (deadline_) deadline_->stop();
}

// --- Observers, queries and the log

void Agent::on_node_query(const rendezvous::NodeQuery& query) {
  const auto answer = [this, number = query.number](std::string bytes) {
    client_->answer({number, std::move(bytes)});
  };
  switch (query.kind) {
    case rendezvous::QueryKind::Status:
      report_times();
      return answer(encode_summary(summary_of(status())));
    case rendezvous::QueryKind::Stacks:
      if (supervision::node_phase(state_) != NodePhase::Running)
        return answer(encode_evidence(
            {.notes = {spec_.host + ": its workers have ended, or are being stopped"}}));
      return runner_.watch().look(
          [answer](const Evidence& evidence) { answer(encode_evidence(evidence)); });
    case rendezvous::QueryKind::Log:
      return log_reader_.read(query.question, world_ ? world_->round : 0, answer);
  }
}

void Agent::on_hang(const rendezvous::HangFound& found) {
  const Evidence evidence = decode_evidence(found.evidence).value_or(Evidence{});
  observers_.write(HangFoundAnywhere{found.round, found.cause, evidence});
  log_hang(log_, found.cause, evidence);
}

void Agent::on_left_out(const LeftOut& node) {
  observers_.write(NodeLeftOut{node});
  log_left_out(log_, node);
}

void Agent::show_joining() {
  if (server_) progress_.start([this] { return server_ ? server_->roll_call() : std::nullopt; });
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
      .phase = supervision::node_phase(state_),
      .world = world_,
      .up = observers_.up(),
      .round_up = observers_.round_up(),
      .times = observers_.times(),
      .pids = world_ ? runner_.workers().pids() : std::vector<int>(),
      .workers_failed = static_cast<int>(runner_.failures().count()),
      .last_failure = observers_.last_failure(),
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
