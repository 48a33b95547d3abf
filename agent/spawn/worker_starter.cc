#include "agent/spawn/worker_starter.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <span>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

namespace drun::agent {
namespace {

// A warm start takes milliseconds.
constexpr std::chrono::milliseconds kCancelGrace = std::chrono::seconds(1);

}  // namespace

struct WorkerStarter::Pending {
  Pending(asio::io_context& io, std::unique_ptr<Start> begun)
      : start(std::move(begun)), sign(io, start->sign()) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() { sign.release(); }  // the descriptor is the start's

  std::unique_ptr<Start> start;
  asio::posix::stream_descriptor sign;
  std::shared_ptr<char> alive = std::make_shared<char>();
};

WorkerStarter::WorkerStarter(asio::io_context& io, Listener& listener, std::size_t most_at_once)
    : io_(io),
      listener_(listener),
      descriptors_(std::clamp<std::size_t>(most_at_once, 1, ChildDescriptors::kSlots)) {}

WorkerStarter::~WorkerStarter() = default;

void WorkerStarter::start(std::vector<Command> commands, WarmStarter* warm) {
  assert(!commands.empty() && pending_.empty());
  warm_ = warm;
  is_asked_ = false;
  ++round_;
  commands_ = std::move(commands);
  placements_.clear();
  placements_.reserve(commands_.size());
  // Workers of a node share these lines: one copy does for all that borrow the same.
  const std::span<const std::string> shared = commands_.front().inherited;
  inherited_.assign(shared.begin(), shared.end());
  for (Command& command : commands_) {
    assert(command.inherited.data() == shared.data());
    command.inherited = inherited_;
    if (command.placement == nullptr) continue;
    placements_.push_back(*command.placement);
    command.placement = &placements_.back();
  }
  next_ = 0;
  refusals_.clear();
  is_stopped_ = false;
  is_refused_ = false;
  is_open_ = true;
  begin_more();
}

void WorkerStarter::begin_more() {
  is_posted_ = false;
  while (next_ < commands_.size() && !is_stopped_ && !is_asked_ && spawner_.has_room()) {
    const auto local_rank = static_cast<int>(next_++);
    begin_one(local_rank);
    // One that was waited for: other handlers have their turn before the next.
    if (!pending_.contains(local_rank)) break;
  }
  if (is_asked_) return;
  const bool has_more = next_ < commands_.size() && !is_stopped_;
  // All places are held by children of an earlier round that cannot be killed.
  if (has_more && pending_.empty() && !spawner_.has_room())
    refuse(static_cast<int>(next_++), NotStarted{EBUSY});
  const bool waits_for_signs = !pending_.empty() && !(has_more && spawner_.has_room());
  if (waits_for_signs || !is_open_ || std::exchange(is_posted_, true)) return;
  asio::post(io_, [this, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired() || !is_posted_) return;
    begin_more();
    report_if_done();
  });
}

void WorkerStarter::begin_one(int local_rank) {
  if (warm_ == nullptr || !ask_warm(local_rank)) begin_plainly(local_rank);
}

bool WorkerStarter::ask_warm(int local_rank) {
  is_asked_ =
      warm_->start(commands_[static_cast<std::size_t>(local_rank)], local_rank,
                   [this, local_rank, round = round_,
                    alive = std::weak_ptr<char>(alive_)](std::optional<Spawner::Begun> begun) {
                     if (alive.expired() || round != round_ || !is_asked_) {
                       if (begun)
                         close(begun->spawned.pidfd);  // it ends when its start is destroyed
                       return;
                     }
                     is_asked_ = false;
                     if (begun)
                       take(local_rank, *std::move(begun));
                     else if (is_stopped_)
                       refuse(local_rank, NotStarted{ECANCELED});
                     else
                       begin_plainly(local_rank);
                     begin_more();
                     report_if_done();
                   });
  return is_asked_;
}

void WorkerStarter::begin_plainly(int local_rank) {
  auto result = spawner_.begin(commands_[static_cast<std::size_t>(local_rank)]);
  if (const auto* refusal = std::get_if<Refusal>(&result)) return refuse(local_rank, *refusal);
  take(local_rank, std::move(std::get<Spawner::Begun>(result)));
}

void WorkerStarter::take(int local_rank, Spawner::Begun begun) {
  listener_.on_begun(local_rank, begun.spawned);
  if (begun.start == nullptr) {
    if (begun.spawned.memory_error != 0) listener_.on_memory_not_placed(begun.spawned.memory_error);
    return;
  }
  // A warm one that was asked for before the stop.
  if (is_stopped_)
    syscall(SYS_pidfd_send_signal, begun.spawned.pidfd, SIGKILL, nullptr, 0);
  else
    begun.start->go();
  const auto [pending, is_new] = pending_.try_emplace(local_rank, io_, std::move(begun.start));
  assert(is_new);
  watch(local_rank, pending->second);
}

void WorkerStarter::watch(int local_rank, Pending& pending) {
  pending.sign.async_wait(
      asio::posix::stream_descriptor::wait_read,
      [this, local_rank, alive = std::weak_ptr<char>(pending.alive)](const error_code& ec) {
        if (ec || alive.expired()) return;
        Pending& waiting = pending_.at(local_rank);
        if (!waiting.start->look()) return watch(local_rank, waiting);
        // One that was refused is about to end: its process is reaped before that is reported.
        if (!waiting.start->refusal()) settle(local_rank);
      });
}

// Its program is executed, or it was killed before.
void WorkerStarter::settle(int local_rank) {
  const auto pending = pending_.find(local_rank);
  const int memory_error = pending->second.start->memory_error();
  pending_.erase(pending);
  if (memory_error != 0) listener_.on_memory_not_placed(memory_error);
  report_refusals();
  begin_more();
  report_if_done();
}

bool WorkerStarter::ended(int local_rank) {
  const auto pending = pending_.find(local_rank);
  if (pending == pending_.end()) return false;
  pending->second.start->ended();
  const std::optional<Refusal> refusal = pending->second.start->refusal();
  if (!refusal) {
    settle(local_rank);
    return false;
  }
  pending_.erase(pending);
  refuse(local_rank, *refusal);
  report_if_done();
  return true;
}

bool WorkerStarter::is_starting(int local_rank) const {
  const auto pending = pending_.find(local_rank);
  return pending != pending_.end() && !pending->second.start->look();
}

void WorkerStarter::refuse(int local_rank, const Refusal& refusal) {
  is_stopped_ = true;
  refusals_.emplace(local_rank, refusal);
  report_refusals();
}

void WorkerStarter::report_refusals() {
  while (!refusals_.empty()) {
    const auto [local_rank, refusal] = *refusals_.begin();
    const bool is_in_turn = pending_.empty() || pending_.begin()->first > local_rank;
    if (!is_in_turn && !is_refused_) return;
    is_refused_ = true;
    refusals_.erase(refusals_.begin());
    listener_.on_refused(local_rank, refusal);
  }
}

void WorkerStarter::report_if_done() {
  const bool has_more = next_ < commands_.size() && !is_stopped_;
  if (has_more || is_asked_ || !pending_.empty() || !refusals_.empty()) return;
  if (std::exchange(is_open_, false)) listener_.on_all_started();
}

std::size_t WorkerStarter::stop() {
  is_stopped_ = true;
  is_refused_ = is_refused_ || !refusals_.empty();
  report_refusals();
  if (is_asked_) warm_->cancel(kCancelGrace);
  return next_;
}

void WorkerStarter::kill() {
  if (is_asked_) warm_->cancel(std::chrono::milliseconds(0));
}

void WorkerStarter::abandon() {
  is_stopped_ = true;
  is_open_ = false;
  is_asked_ = false;
  pending_.clear();
  refusals_.clear();
}

}  // namespace drun::agent
