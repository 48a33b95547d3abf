#include "agent/workers/workers.h"

#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include "agent/process/descendants.h"
#include "agent/wall_time.h"
#include "rendezvous/base/result.h"

namespace drun::agent {
namespace {

worker_group::Times to_times(const WorkersSpec& spec) {
  worker_group::Times times;
  times.shutdown = spec.shutdown_timeout;
  times.unkillable = spec.unkillable_timeout;
  return times;
}

// Explains why the kernel rejected a worker's placement.
std::string bound_message(int local_rank, const WorkerPlacement& placement,
                          const NotBound& refused) {
  return "local rank " + std::to_string(local_rank) + " cannot be bound to " +
         (refused.is_memory ? "memory of NUMA node " + ranges_text(placement.memory_nodes)
                            : "CPUs " + ranges_text(placement.cpus)) +
         ": " + system_message(refused.error_number) + "; " +
         (refused.is_memory ? "choose --bind-memory=prefer or none" : "choose --bind-to=none");
}

// The likely reason for an error number that does not explain itself; empty: it does.
std::string refusal_message(int error_number) {
  rlimit files{};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
    return "this node's agent can open only " + std::to_string(files.rlim_cur) +
           " files; raise the limit (ulimit -n), or start fewer workers on a node";
  if (error_number == EAGAIN)
    return "a limit on processes may have been reached; check ulimit -u, pids.max of the cgroup, "
           "and kernel.pid_max";
  if (error_number == EBUSY)  // of WorkerStarter
    return "processes that began earlier on this node cannot be killed; the kernel's log may say "
           "what they wait for";
  return error_number == EIO ? system_message(EIO) : "";
}

}  // namespace

Workers::Workers(asio::io_context& io, Log log, WorkersSpec spec, Listener& listener)
    : io_(io),
      log_(std::move(log)),
      listener_(listener),
      starter_(io, *this, spec.most_at_once),
      group_{.times = to_times(spec), .leftovers = spec.leftovers},
      timer_(io),
      child_signals_(io) {
  become_subreaper();
  child_signals_.add(SIGCHLD);
  // The signal mask survives exec, so the parent may have left the signal blocked.
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  pthread_sigmask(SIG_UNBLOCK, &child_ended, nullptr);
}

void Workers::spare(int pid) {
  orphans_.spare(pid);
  if (pid != 0) remember_group(pid);
}

void Workers::spared_ended() {
  orphans_.spare(0);
  if (is_open_) look_soon();
}

void Workers::start(std::vector<Command> commands, WarmStarter* warm) {
  assert(!commands.empty() && group_.phase == worker_group::Phase::Idle);
  ++round_;
  sent_ = Sent::Nothing;
  has_succeeded_ = false;
  is_started_ = false;
  is_refused_ = false;
  processes_.clear();
  processes_.resize(commands.size());
  ends_.assign(commands.size(), {});
  begun_.assign(commands.size(), 0);
  placements_.clear();
  for (const Command& command : commands) {
    placements_.emplace_back();
    if (command.placement != nullptr) placements_.back() = *command.placement;
  }
  orphans_.begin();
  oom_.begin();
  open();
  feed(worker_group::Started{.workers = static_cast<int>(commands.size())});
  starter_.start(std::move(commands), warm);
}

void Workers::on_begun(int local_rank, const Spawned& spawned) {
  const int pid = spawned.pid;
  orphans_.note_group(pid);
  remember_group(pid);
  running_.emplace(pid, local_rank);
  begun_[static_cast<std::size_t>(local_rank)] = pid;
  processes_[static_cast<std::size_t>(local_rank)] = std::make_unique<Process>(
      io_, spawned,
      [this, local_rank, pid](const ExitStatus& status) { on_end(local_rank, pid, status); });
}

// The first one stops the others; refusals of workers that began at the same time are not separate
// failures.
void Workers::on_refused(int local_rank, const Refusal& refusal) {
  const auto rank = static_cast<std::size_t>(local_rank);
  begun_[rank] = 0;
  NotStarted status;
  if (const auto* not_bound = std::get_if<NotBound>(&refusal)) {
    ends_[rank].message = bound_message(local_rank, *placements_[rank], *not_bound);
    status.error_number = not_bound->error_number;
  } else {
    status = std::get<NotStarted>(refusal);
    ends_[rank].message = refusal_message(status.error_number);
  }
  note_end(local_rank, 0, status);
  is_refused_ = true;
}

void Workers::on_memory_not_placed(int error_number) {
  if (std::exchange(has_warned_, true)) return;  // one warning for all workers
  log_.warning(
      "the kernel does not let workers' memory be placed: " + system_message(error_number) +
      "; give the container that right (Docker: --cap-add=SYS_NICE), or choose "
      "--bind-memory=none");
}

void Workers::on_all_started() {
  if (!std::exchange(is_started_, true)) listener_.on_all_started(begun_);
}

// No further worker begins; those that have not begun count as stopped.
void Workers::note_sent(Sent sent) {
  if (std::exchange(sent_, sent) != Sent::Nothing) return;
  for (std::size_t i = starter_.stop(); i < ends_.size(); ++i)
    feed(worker_group::WorkerExited{
        .local_rank = static_cast<int>(i), .succeeded = false, .before_stop = false});
}

void Workers::on_end(int local_rank, int pid, const ExitStatus& status) {
  running_.erase(pid);
  if (starter_.ended(local_rank)) return look_soon();  // on_refused() follows
  if (is_stopped_by_signal(status)) orphans_.note_stopped(pid);
  note_end(local_rank, pid, status);
}

void Workers::note_end(int local_rank, int pid, const ExitStatus& status) {
  WorkerEnd& end = ends_[static_cast<std::size_t>(local_rank)];
  end = {.local_rank = local_rank,
         .pid = pid,
         .status = status,
         .seen = std::chrono::steady_clock::now(),
         .time = wall_now(),
         .stopped_by_us = sent_ != Sent::Nothing || (pid == 0 && is_refused_),
         .out_of_memory = false,
         .message = std::move(end.message),
         .usage = pid != 0 && processes_[static_cast<std::size_t>(local_rank)] != nullptr
                      ? processes_[static_cast<std::size_t>(local_rank)]->usage()
                      : std::nullopt};
  // The other ranks may have seen its end, and stopped the round, before its memory was free.
  const auto* killed = std::get_if<Killed>(&status);
  if (killed != nullptr && killed->signal == SIGKILL && sent_ != Sent::Kill)
    end.out_of_memory = oom_.is_victim(pid);
  if (end.out_of_memory) end.stopped_by_us = false;
  if (pid != 0) listener_.on_worker_ended(end);
  feed(worker_group::WorkerExited{.local_rank = local_rank,
                                  .succeeded = is_success(status),
                                  .before_stop = !end.stopped_by_us,
                                  .holds_stop = !is_success(status) && !end.stopped_by_us &&
                                                pid != 0 && listener_.holds_stop(end)});
  look_soon();
}

// Before the first stop signal: workers that have exited by now were not stopped by drun.
void Workers::collect_all() {
  for (const auto& process : processes_)
    if (process != nullptr) process->collect();
}

void Workers::feed(const worker_group::Event& event) {
  events_.push_back(event);
  if (std::exchange(drain_posted_, true)) return;
  asio::post(io_, [this, alive = Alive(alive_)] {
    if (!alive.expired()) drain();
  });
}

void Workers::drain() {
  const worker_group::Time now = std::chrono::steady_clock::now();
  const bool is_quiet =
      std::all_of(events_.begin(), events_.end(), [](const worker_group::Event& event) {
        const auto* exited = std::get_if<worker_group::WorkerExited>(&event);
        return std::holds_alternative<worker_group::Started>(event) ||
               (exited != nullptr && exited->succeeded);
      });
  if (!is_quiet && sent_ == Sent::Nothing) collect_all();
  while (!events_.empty()) {
    const worker_group::Event event = events_.front();
    events_.pop_front();
    for (const worker_group::Action& action : step(group_, event, now))
      std::visit([this](const auto& kind) { perform(kind); }, action);
  }
  drain_posted_ = false;
  timer_.set(deadline(group_), [this] { feed(worker_group::DeadlinePassed{}); });
}

void Workers::open() {
  if (!std::exchange(is_open_, true)) wait_for_children();
}

// Adopted orphans have no pidfd; SIGCHLD reports their end.
void Workers::wait_for_children() {
  child_signals_.async_wait([this, alive = Alive(alive_), round = round_](error_code ec, int) {
    if (ec || alive.expired() || round != round_ || !is_open_) return;
    look_soon();
    wait_for_children();
  });
}

void Workers::look_soon() {
  if (std::exchange(look_posted_, true)) return;
  asio::post(io_, [this, alive = Alive(alive_)] {
    if (!alive.expired()) look();
  });
}

void Workers::look() {
  look_posted_ = false;
  const bool is_all_gone = orphans_.reap([this](int pid) { return running_.contains(pid); });
  if (is_all_gone) return feed(worker_group::AllGone{});
  if (sent_ == Sent::Stop) orphans_.signal_missed(stop_signal_);
}

bool Workers::is_stopped_by_signal(const ExitStatus& status) const {
  const auto* killed = std::get_if<Killed>(&status);
  return killed != nullptr && sent_ == Sent::Stop && killed->signal == stop_signal_;
}

void Workers::perform(const worker_group::SignalAll& all) {
  open();  // kept processes are stopped after the report of their round
  if (!running_.empty())
    log_.debug("stopping workers signal=" + signal_name(all.signal) +
               " running=" + std::to_string(running_.size()));
  stop_signal_ = all.signal;
  note_sent(Sent::Stop);
  const std::uint64_t begin = ticks_since_boot();
  for (const auto& [pid, local_rank] : running_) {
    // A child before its exec has nothing to clean up and shares this process's memory. Before
    // Linux 5.17, a signal that dumps core would also end this process.
    const int signal = starter_.is_starting(local_rank) ? SIGKILL : all.signal;
    processes_[static_cast<std::size_t>(local_rank)]->signal_group(signal);
    orphans_.mark_group(pid);
  }
  orphans_.note_group_signals(begin);
  // A stopped process handles signals only after SIGCONT.
  pass_on(SIGCONT);
  // In a separate turn, so that a failure is reported before /proc is read.
  asio::post(io_, [this, alive = Alive(alive_), round = round_, signal = all.signal] {
    if (alive.expired() || round != round_ || !is_open_) return;
    orphans_.signal_once(signal, has_succeeded_);
  });
}

// A signal other than SIGTERM goes only to processes that handle it: it would kill others, such as
// data loaders, and the workers with them.
void Workers::perform(const worker_group::NotifyAll& notice) {
  log_.debug("notifying workers signal=" + signal_name(notice.signal));
  note_sent(Sent::Notice);
  for (const auto& [pid, local_rank] : running_) {
    Process& process = *processes_[static_cast<std::size_t>(local_rank)];
    if (starter_.is_starting(local_rank))
      process.signal_group(SIGKILL);  // as in SignalAll
    else if (notice.signal == SIGTERM)
      process.signal_group(SIGTERM);
  }
  if (notice.signal != SIGTERM && !orphans_.notify(notice.signal))
    log_.warning("cannot send " + signal_name(notice.signal) +
                 " to the workers: which processes handle it cannot be seen (is /proc hidden, or "
                 "memory limited?); choose SIGTERM in --signal-before");
}

void Workers::perform(const worker_group::KillAll&) {
  open();
  note_sent(Sent::Kill);
  starter_.kill();
  pass_on(SIGKILL);
  orphans_.kill_all(has_succeeded_);
}

void Workers::perform(const worker_group::ReportSuccess&) {
  has_succeeded_ = true;
  on_all_started();
  listener_.on_all_succeeded();
}

void Workers::perform(const worker_group::ReportWaiting& waiting) {
  const LeftoverList leftovers = orphans_.running();
  warn_if_blind();
  if (leftovers.count > 0) listener_.on_waiting(leftovers, waiting.time_left);
}

void Workers::perform(const worker_group::ReportFailure& failure) {
  on_all_started();
  const WorkerEnd end = ends_[static_cast<std::size_t>(failure.local_rank)];
  listener_.on_worker_failed(end);
}

void Workers::perform(const worker_group::ReportGone& gone) {
  is_open_ = false;
  on_all_started();
  starter_.abandon();
  child_signals_.cancel();
  if (gone.end == worker_group::RoundEnd::Unkillable) orphans_.give_up();
  running_.clear();
  processes_.clear();
  Leftovers leftovers = orphans_.leftovers();
  if (gone.end == worker_group::RoundEnd::Kept) leftovers.kept = orphans_.running();
  warn_if_blind();
  listener_.on_all_gone(leftovers);
}

void Workers::warn_if_blind() {
  if (!orphans_.is_blind() || std::exchange(has_warned_blind_, true)) return;
  log_.warning(
      "the processes below drun cannot be seen (is /proc hidden, or memory limited?); leftover "
      "processes are not named, only the workers' process groups are stopped, and processes that "
      "left them may still run");
}

void Workers::pass_on(int signal) {
  for (const auto& [pid, local_rank] : running_) {
    // Before exec it has no handler, and the signal would end it.
    if (!starter_.is_starting(local_rank))
      processes_[static_cast<std::size_t>(local_rank)]->signal_group(signal);
  }
}

void Workers::signal_worker(int local_rank, int signal) {
  for (const auto& [pid, each] : running_)
    if (each == local_rank) processes_[static_cast<std::size_t>(each)]->signal_group(signal);
}

std::vector<int> Workers::pids() const {
  std::vector<int> pids(ends_.size(), 0);
  for (const auto& [pid, local_rank] : running_) pids[static_cast<std::size_t>(local_rank)] = pid;
  return pids;
}

}  // namespace drun::agent
