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

void Couriers::send(std::shared_ptr<Errand> errand) {
  threads_.submit([errand = std::move(errand)] { errand->run(); });
}

void Couriers::look_after(std::shared_ptr<Errand> errand) {
  const std::lock_guard lock(mutex_);
  fresh_.push_back(std::move(errand));
  if (std::exchange(is_watching_, true)) return;
  watcher_.submit([this] { watch(); });
}

void Couriers::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stopping_.notify_all();
  watcher_.stop();
  threads_.stop();
}

// It goes on for some idle ticks with nothing to do, too: to wake it for each message would be what
// it is there to save.
void Couriers::watch() {
  Errands all;
  std::unique_lock lock(mutex_);
  for (int idle = 0; !all.empty() || idle <= kIdleTicks; idle = std::min(idle, kIdleTicks) + 1) {
    const milliseconds tick = idle < kIdleTicks ? kTick : kSlowTick;
    stopping_.wait_for(lock, tick, [this] { return is_stopping_; });
    const bool is_last = is_stopping_;
    if (!fresh_.empty()) idle = 0;
    std::move(fresh_.begin(), fresh_.end(), std::back_inserter(all));
    fresh_.clear();
    if (is_last && all.empty()) break;
    lock.unlock();
    if (is_last) {
      for (const std::shared_ptr<Errand>& errand : all) errand->run();
    }
    const auto open = std::remove_if(all.begin(), all.end(),
                                     [](const auto& errand) { return errand->is_done(); });
    if (open != all.end()) idle = 0;
    all.erase(open, all.end());
    lock.lock();
  }
  is_watching_ = false;
}

}  // namespace drun::worker
