// edge. Who finishes the messages that a program has started, for as long as the program does not
// wait for them itself: a thread for each message that goes on in its own finish only, and one that
// asks after all others every few milliseconds, by which they move, too.
//
// Thread:  send and look_after from any.
// Owner:   a group; stop() has all that was sent done, then joins.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_lib/errand.h"
#include "worker_lib/threads.h"

namespace drun::worker {

class Couriers {
 public:
  Couriers() = default;
  ~Couriers() { stop(); }
  Couriers(const Couriers&) = delete;
  Couriers& operator=(const Couriers&) = delete;

  // To be done right away: it waits for other ranks, and so must not wait for others of its kind.
  void send(std::shared_ptr<Errand> errand);
  // To be asked after until it is done: every millisecond, every ten where it takes long. Requires
  // one whose end can be asked for.
  void look_after(std::shared_ptr<Errand> errand);
  // Afterwards nothing may be sent. Again: nothing.
  void stop();

 private:
  using Errands = std::vector<std::shared_ptr<Errand>>;

  void watch();

  std::mutex mutex_;
  std::condition_variable stopping_;
  Errands fresh_;  // since the watcher last looked
  bool is_watching_ = false;
  bool is_stopping_ = false;
  Threads threads_{Threads::kNoLimit};
  Threads watcher_{1};
};

}  // namespace drun::worker
