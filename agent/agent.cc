#include "agent/agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "agent/descriptor_limit.h"
#include "agent/failure_record.h"
#include "agent/output.h"
#include "agent/signals.h"
#include "agent/worker_command.h"
#include "agent/workers.h"
#include "rendezvous/asio.h"
#include "rendezvous/client.h"
#include "rendezvous/overloaded.h"
#include "rendezvous/server.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {
namespace {

// After the last process is gone a pipe can only be held open by what the kernel did not let go.
constexpr std::chrono::seconds kDrainAtMost{1};

class Agent final : rendezvous::Client::Listener, Workers::Listener, Signals::Listener {
 public:
  Agent(const AgentSpec& spec, const Log& log);
  AgentEnd run();

 private:
  // Where this node stands in the round that it was last told of.
  enum class Round { None, Running, Draining, Over };

  Result<void> open();
  void end();
  bool is_ready_to_end() const;

  void on_world(const World& world) override;
  void on_stop(int round) override;
  void on_outcome(const Outcome& outcome) override;
  void on_worker_failed(const WorkerEnd& end) override;
  void on_all_succeeded() override {}
  void on_all_gone(const Leftovers& leftovers) override;
  void on_terminate(int signal) override;
  void on_kill_now() override;
  void on_pass_on(int signal) override { workers_.pass_on(signal); }

  Result<void> open_streams();
  Result<void> start_workers();
  void report_unable(const Error& error);
  void give_up_on_console();
  void report_round();
  void warn_of_ranks_not_there() const;
  void log_leftovers(const Leftovers& leftovers) const;

  const AgentSpec& spec_;
  Log log_;
  asio::io_context io_{1};
  // Runs once somebody wants it all killed: a console that takes nothing is not waited for.
  asio::steady_timer give_up_{io_};
  std::optional<std::uint64_t> users_limit_ = raise_descriptor_limit();
  std::vector<std::string> inherited_;
  Output output_;
  Workers workers_;
  Signals signals_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Client> client_;
  std::optional<World> world_;
  std::vector<WorkerStreams> streams_;
  std::vector<WorkerEnd> failures_;  // of this round, in order
  Round round_ = Round::None;
  bool is_stopping_ = false;
  bool is_killing_ = false;
  std::optional<Outcome> outcome_;
};

Agent::Agent(const AgentSpec& spec, const Log& log)
    : spec_(spec),
      log_(log),
      inherited_(to_lines(spec.worker.environment)),
      output_(io_, log, spec.output, spec.host),
      workers_(io_, log, WorkersSpec{.shutdown_timeout = spec.shutdown_timeout}, *this),
      signals_(io_, spec.termination_signals, *this) {}

Result<void> Agent::open() {
  if (Result<void> prepared = output_.prepare(spec_.join.run_id); !prepared)
    return prepared.error();
  JoinSpec join = spec_.join;
  if (join.is_coordinator) {
    auto server = rendezvous::Server::open(io_, join, log_, [this] {
      server_.reset();
      if (is_ready_to_end()) end();
    });
    if (!server) return server.error();
    server_ = *std::move(server);
    join.endpoint.port = server_->port();
    if (join.master_port == 0) join.master_port = server_->port();
  }
  rendezvous::Client::Listener& listener = *this;
  client_ = std::make_unique<rendezvous::Client>(io_, std::move(join), spec_.host, log_, listener);
  return {};
}

AgentEnd Agent::run() {
  signals_.start();
  if (Result<void> opened = open(); opened) {
    client_->start();
    io_.run();
  } else {
    outcome_ = Outcome{.ending = NotRun{opened.error()}, .run_id = spec_.join.run_id};
  }
  assert(outcome_);  // the loop has an end only after it
  leave_error_file(spec_, *outcome_, log_);
  output_.finish();
  return AgentEnd{.outcome = *outcome_, .log_directory = output_.log_place()};
}

bool Agent::is_ready_to_end() const {
  const bool is_running = round_ == Round::Running || round_ == Round::Draining;
  return outcome_ && !is_running && !server_;
}

// Lets go of everything that keeps the loop alive; the loop then ends by itself.
void Agent::end() {
  client_->close();
  signals_.stop();
  give_up_.cancel();
}

void Agent::on_world(const World& world) {
  world_ = world;
  failures_.clear();
  is_stopping_ = false;
  if (world.round > 0) {
    log_.info("restarting all workers, restart " + std::to_string(world.round) + " of " +
              std::to_string(world.max_restarts));
  }
  warn_of_ranks_not_there();
  Result<void> started = open_streams();
  if (started) started = start_workers();
  output_.close_worker_ends();
  if (!started) report_unable(started.error());
}

// With several nodes only the world tells how many ranks there are; one node says it for all.
void Agent::warn_of_ranks_not_there() const {
  if (world_->round > 0 || world_->node_rank != 0) return;
  for (const int rank : spec_.worker.wrap.ranks) {
    if (rank >= world_->world_size)
      log_.warning("--wrap-ranks: there is no rank " + std::to_string(rank) +
                   "; they go from 0 to " + std::to_string(world_->world_size - 1));
  }
}

Result<void> Agent::open_streams() {
  streams_.clear();
  if (Result<void> opened = output_.open_round(*world_); !opened) return opened.error();
  for (int local_rank = 0; local_rank < world_->local_world_size; ++local_rank) {
    Result<WorkerStreams> streams = output_.open_worker(local_rank);
    if (!streams) return streams.error();
    streams_.push_back(*std::move(streams));
  }
  return {};
}

Result<void> Agent::start_workers() {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) return system_error("open /dev/null", errno);
  std::vector<Command> commands;
  commands.reserve(streams_.size());
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const int local_rank = static_cast<int>(i);
    const bool reads_stdin = spec_.worker.stdin_source == StdinSource::Rank0 && local_rank == 0;
    commands.push_back(Command{
        .argv = wrapped_argv(spec_.worker, *world_, local_rank),
        .inherited = inherited_,
        .environment = own_environment(spec_.worker, *world_, local_rank, streams_[i].error_file),
        .stdin_fd = reads_stdin ? STDIN_FILENO : null.get(),
        .stdout_fd = streams_[i].stdout_fd,
        .stderr_fd = streams_[i].stderr_fd,
        .descriptor_limit = users_limit_,
        .placement = placement_of(spec_.worker, local_rank),
    });
  }
  round_ = Round::Running;
  workers_.start(commands);
  return {};
}

// A full disk, no descriptors left: this node cannot run the round, and everyone hears why.
void Agent::report_unable(const Error& error) {
  log_.error("cannot start this node's workers: " + error.message);
  round_ = Round::Over;
  client_->report_failure(unable_failure(spec_, *world_, error));
  client_->report_stopped(world_->round, {unable_failure(spec_, *world_, error)});
}

void Agent::on_worker_failed(const WorkerEnd& end) {
  const Failure failure = brief_failure(spec_, *world_, end);
  failures_.push_back(end);
  log_.warning("rank " + std::to_string(failure.rank) + " (local rank " +
               std::to_string(failure.local_rank) + ", pid " + std::to_string(failure.pid) +
               ") failed: " + to_string(failure.status) +
               (failure.out_of_memory ? ", out of memory" : ""));
  client_->report_failure(failure);
}

void Agent::on_stop(int round) {
  if (!world_ || round != world_->round) return;
  is_stopping_ = true;
  if (round_ == Round::Running) return workers_.stop();
  if (round_ == Round::Over) client_->report_stopped(round, {});
}

void Agent::on_all_gone(const Leftovers& leftovers) {
  log_leftovers(leftovers);
  round_ = Round::Draining;
  output_.drain(kDrainAtMost, [this] { report_round(); });
  if (is_killing_) give_up_on_console();
}

// What the console has not taken a second after the kill is dropped.
void Agent::give_up_on_console() {
  give_up_.expires_after(kDrainAtMost);
  give_up_.async_wait([this](const error_code& ec) {
    if (!ec && round_ == Round::Draining) output_.stop();
  });
}

void Agent::on_kill_now() {
  is_killing_ = true;
  workers_.kill_now();
  if (round_ == Round::Draining) give_up_on_console();
}

void Agent::report_round() {
  round_ = Round::Over;
  if (outcome_) {
    if (is_ready_to_end()) end();
    return;
  }
  if (failures_.empty() && !is_stopping_) return client_->report_success(world_->round);
  std::vector<Failure> failures;
  failures.reserve(failures_.size());
  for (const WorkerEnd& end : failures_) {
    const auto i = static_cast<std::size_t>(end.local_rank);
    failures.push_back(full_failure(brief_failure(spec_, *world_, end), streams_[i],
                                    output_.stderr_tail(end.local_rank)));
  }
  client_->report_stopped(world_->round, std::move(failures));
}

void Agent::on_terminate(int signal) {
  log_.info("got " + signal_name(signal) + ", ending the job");
  is_stopping_ = true;
  client_->interrupt(signal);
  if (round_ == Round::Running) workers_.stop(signal);
}

void Agent::on_outcome(const Outcome& outcome) {
  outcome_ = outcome;
  if (round_ == Round::Running) workers_.stop();
  if (is_ready_to_end()) end();
}

void Agent::log_leftovers(const Leftovers& leftovers) const {
  for (const Leftover& one : leftovers.stopped) {
    log_.warning("ended what a worker left running: pid " + std::to_string(one.pid) + " (" +
                 one.name + ")");
  }
  for (const Leftover& one : leftovers.unkillable) {
    log_.error("pid " + std::to_string(one.pid) + " (" + one.name +
               ") does not end on SIGKILL: it is stuck in the kernel; going on without it");
  }
}

}  // namespace

AgentEnd run_agent(const AgentSpec& spec, const Log& log) {
  Agent agent(spec, log);
  return agent.run();
}

}  // namespace drun::agent
