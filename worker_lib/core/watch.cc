#include "worker_lib/core/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "worker_lib/base/process.h"

namespace drun::worker {
namespace {

constexpr Deadline kNever = Deadline::max();

// Times since the start of the clock are positive; a deadline at or before it has passed as well.
Deadline::rep number_of(Deadline deadline) {
  return std::max<Deadline::rep>(deadline.time_since_epoch().count(), 1);
}

int milliseconds_until(Deadline deadline) {
  if (deadline == kNever) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(1);
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kMost).count());
}

}  // namespace

Watch::Watch() : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_fd_) {
    throw BackendFailure(WorkerError::Kind::System,
                         "cannot watch the other ranks: " + error_text(errno));
  }
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    if (thread_.joinable()) start_or_wake();
  }
  if (thread_.joinable()) thread_.join();
}

void Watch::start() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) start_or_wake();
}

Watch::Slot& Watch::take_slot(Deadline deadline, void (*on_late)(void*), void* argument) {
  if (!is_started_) start();
  for (Slots* slots = &slots_;; slots = slots->next) {
    for (Slot& slot : slots->all) {
      Deadline::rep free = kFree;
      if (slot.state.load(std::memory_order_relaxed) != kFree ||
          !slot.state.compare_exchange_strong(free, kTaken)) {
        continue;
      }
      slot.call = on_late;
      slot.argument = argument;
      slot.state = number_of(deadline);
      // The thread announces its next wake-up and then reads the slots. Either it sees this slot,
      // or its announcement is seen here. Usually the next deadline is later than the last, and the
      // thread need not be woken for it.
      if (number_of(deadline) < awake_at_) {
        const std::lock_guard lock(mutex_);
        start_or_wake();
      }
      return slot;
    }
    const std::lock_guard lock(mutex_);
    if (slots->next == nullptr) slots->next = new Slots;
  }
}

void Watch::give_back(Slot& slot, Deadline deadline) {
  Deadline::rep waiting = number_of(deadline);
  if (slot.state.compare_exchange_strong(waiting, kFree)) return;
  std::unique_lock lock(mutex_);
  called_.wait(lock, [&slot] { return slot.state == kCalled; });
  slot.state = kFree;
}

Watch::Id Watch::add_lifelines(std::vector<Lifeline> lifelines,
                               std::function<void(int rank)> on_end) {
  const std::lock_guard lock(mutex_);
  const Id id = ++last_id_;
  if (lifelines.empty()) return id;
  if (!thread_.joinable()) start_or_wake();
  lines_.emplace(id, Lines{std::move(lifelines), std::move(on_end)});
  start_or_wake();
  return id;
}

void Watch::remove(Id id) {
  std::unique_lock lock(mutex_);
  // The thread may be polling these descriptors, which are about to be closed.
  if (lines_.erase(id) > 0) start_or_wake();
  if (std::this_thread::get_id() == thread_.get_id()) return;
  called_.wait(lock, [this, id] { return calling_ != id; });
}

void Watch::start_or_wake() {
  if (!thread_.joinable()) {
    thread_ = start_thread([this] { run(); });
    is_started_ = true;
    return;
  }
  const std::uint64_t one = 1;
  if (write(wake_fd_.get(), &one, sizeof(one)) < 0) return;  // full: it will wake anyway
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    const std::vector<int> ready = wait_for_something(lock);
    call_late(lock);
    call_ended(lock, ready);
  }
}

// Groups share descriptors, and poll(2) refuses a list that is longer than the limit on them.
std::vector<int> Watch::wait_for_something(std::unique_lock<std::mutex>& lock) {
  std::vector<int> watched;
  for (const auto& [id, lines] : lines_) {
    for (const Lifeline& line : lines.alive) watched.push_back(line.fd);
  }
  std::sort(watched.begin(), watched.end());
  watched.erase(std::unique(watched.begin(), watched.end()), watched.end());
  std::vector<pollfd> fds{{.fd = wake_fd_.get(), .events = POLLIN, .revents = 0}};
  for (const int fd : watched) fds.push_back({fd, POLLIN, 0});
  awake_at_ = number_of(kNever);
  const Deadline next = next_deadline();
  awake_at_ = number_of(next);
  const int timeout = milliseconds_until(next);
  lock.unlock();
  poll(fds.data(), fds.size(), timeout);
  std::uint64_t count = 0;
  if (read(wake_fd_.get(), &count, sizeof(count)) < 0) count = 0;  // it was not woken
  std::vector<int> ready;
  for (const pollfd& each : fds)
    if (each.revents != 0 && each.fd != wake_fd_.get()) ready.push_back(each.fd);
  lock.lock();
  return ready;
}

Deadline Watch::next_deadline() const {
  Deadline next = kNever;
  for (const Slots* slots = &slots_; slots != nullptr; slots = slots->next) {
    for (const Slot& slot : slots->all) {
      const Deadline::rep state = slot.state;
      if (state > kFree) next = std::min(next, Deadline(Deadline::duration(state)));
    }
  }
  return next;
}

void Watch::call_late(std::unique_lock<std::mutex>& lock) {
  const Deadline::rep now = number_of(std::chrono::steady_clock::now());
  for (Slots* slots = &slots_; slots != nullptr; slots = slots->next) {
    for (Slot& slot : slots->all) {
      Deadline::rep deadline = slot.state;
      if (deadline <= kFree || deadline > now) continue;
      if (!slot.state.compare_exchange_strong(deadline, kCalling)) continue;
      const auto call = [this, &slot] {
        slot.call(slot.argument);
        const std::lock_guard locked(mutex_);
        slot.state = kCalled;
        called_.notify_all();
      };
      lock.unlock();
      if (!late_calls_.try_submit(call)) call();  // no thread can be started
      lock.lock();
    }
  }
}

// One descriptor at a time, as the functions may remove any of them; another one can have the
// number of a ready one by now.
void Watch::call_ended(std::unique_lock<std::mutex>& lock, const std::vector<int>& ready) {
  if (ready.empty()) return;
  const auto next_ended = [&]() -> std::optional<std::pair<Id, int>> {
    for (auto& [id, lines] : lines_) {
      for (auto line = lines.alive.begin(); line != lines.alive.end(); ++line) {
        if (!std::binary_search(ready.begin(), ready.end(), line->fd)) continue;
        pollfd one{line->fd, POLLIN, 0};
        if (poll(&one, 1, 0) <= 0) continue;
        const int rank = line->rank;
        lines.alive.erase(line);
        return std::pair(id, rank);
      }
    }
    return std::nullopt;
  };
  while (const std::optional<std::pair<Id, int>> ended = next_ended()) {
    const auto [id, rank] = *ended;
    const std::function<void(int)> function = lines_[id].call;
    calling_ = id;
    lock.unlock();
    function(rank);
    lock.lock();
    calling_ = 0;
    called_.notify_all();
  }
}

}  // namespace drun::worker
