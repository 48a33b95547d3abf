#include "worker_lib/couriers.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace drun::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTick{1};
constexpr milliseconds kSlowTick{10};
// So many ticks in which nothing was sent and nothing done make it slow.
constexpr int kIdleTicks = 100;

}  // namespace

std::shared_ptr<Errand> Couriers::send(Errand::Deed deed) {
  const auto self = std::make_shared<std::weak_ptr<Errand>>();
  auto errand = std::make_shared<Errand>(std::move(deed), [this, self] {
    if (std::shared_ptr<Errand> open = std::exchange(*self, {}).lock()) {
      threads_.submit([open = std::move(open)] { open->run(); });
    }
    return false;
  });
  *self = errand;
  look_after(errand);
  return errand;
}

void Couriers::look_after(std::shared_ptr<Errand> errand) {
  const std::lock_guard lock(mutex_);
  fresh_.push_back(std::move(errand));
  if (!std::exchange(is_watching_, true)) return watcher_.submit([this] { watch(); });
  if (is_slow_) changed_.notify_one();
}

void Couriers::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_one();
  watcher_.stop();
  threads_.stop();
}

// It goes on for some idle ticks with nothing to do, too: to wake it for each message would be what
// it is there to save. What is fresh has a tick in which its program may come for it.
void Couriers::watch() {
  Errands all;
  std::unique_lock lock(mutex_);
  const auto has_any = [&] { return !all.empty() || !fresh_.empty(); };
  for (int idle = 0; has_any() || (idle <= kIdleTicks && !is_stopping_);
       idle = std::min(idle, kIdleTicks) + 1) {
    is_slow_ = idle >= kIdleTicks;
    const bool was_stopping = is_stopping_;
    changed_.wait_for(lock, is_slow_ && !was_stopping ? kSlowTick : kTick, [&] {
      return is_stopping_ != was_stopping || (is_slow_ && !fresh_.empty());
    });
    const bool is_last = is_stopping_;
    lock.unlock();
    if (is_last) {
      for (const std::shared_ptr<Errand>& errand : all) errand->run();
    }
    const auto open = std::remove_if(all.begin(), all.end(),
                                     [](const auto& errand) { return errand->is_done(); });
    if (open != all.end()) idle = 0;
    all.erase(open, all.end());
    lock.lock();
    if (!fresh_.empty()) idle = 0;
    std::move(fresh_.begin(), fresh_.end(), std::back_inserter(all));
    fresh_.clear();
  }
  is_watching_ = is_slow_ = false;
}

}  // namespace drun::worker
