#include "worker_lib/couriers.h"

#include <chrono>
#include <utility>

namespace drun::worker {
namespace {

constexpr std::chrono::milliseconds kGrace{1};

}  // namespace

void Couriers::send(std::shared_ptr<Errand> errand) {
  threads_.submit([errand = std::move(errand)] { errand->run(); });
}

void Couriers::send_later(std::shared_ptr<Errand> errand) {
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

// Until nothing has come for a while: to wake it for each message would be what it is there to
// save.
void Couriers::watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    stopping_.wait_for(lock, kGrace, [this] { return is_stopping_; });
    const std::vector<std::shared_ptr<Errand>> late =
        std::exchange(older_, std::exchange(fresh_, {}));
    if (late.empty() && older_.empty()) break;
    lock.unlock();
    for (const std::shared_ptr<Errand>& errand : late) {
      if (errand->is_open()) send(errand);
    }
    lock.lock();
  }
  is_watching_ = false;
}

}  // namespace drun::worker
