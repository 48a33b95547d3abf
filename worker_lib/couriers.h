// edge. Who finishes the messages that a program has started: threads of the group's, for as long
// as the program does not wait for them itself.
//
// Grace:   a message of which is_done can be asked is left to the program for a moment, as it
// mostly
//          waits for a message at once, and would have to wait for the thread then.
// Thread:  send from any.
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

  // To be done right away: errands wait for other ranks, and so must not wait for each other.
  void send(std::shared_ptr<Errand> errand);
  // To be done if nobody has begun with it after 1 to 2 ms.
  void send_later(std::shared_ptr<Errand> errand);
  // Afterwards nothing may be sent. Again: nothing.
  void stop();

 private:
  void watch();

  std::mutex mutex_;
  std::condition_variable stopping_;
  std::vector<std::shared_ptr<Errand>> fresh_;  // since the watcher last looked
  std::vector<std::shared_ptr<Errand>> older_;
  bool is_watching_ = false;
  bool is_stopping_ = false;
  Threads threads_{Threads::kNoLimit};
  Threads watcher_{1};
};

}  // namespace drun::worker
