// edge. Who finishes the messages that a program has started, for as long as the program does not
// wait for them itself: one thread that asks after all of them every few milliseconds, by which
// most move; and a thread for each of those that go on in their own finish only.
//
// A thread for each: it waits for other ranks, and so must not wait for others of its kind.
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

  // Done by who waits for it, or by a thread of its own: when somebody has asked whether it is
  // done, or nobody has come for it within a few milliseconds.
  std::shared_ptr<Errand> send(Errand::Deed deed);
  // To be asked after until it is done: every millisecond, every ten where it takes long. Requires
  // one whose end can be asked for.
  void look_after(std::shared_ptr<Errand> errand);
  // Afterwards nothing may be sent. Again: nothing.
  void stop();

 private:
  using Errands = std::vector<std::shared_ptr<Errand>>;

  void watch();

  std::mutex mutex_;
  std::condition_variable changed_;  // what the watcher waits for
  Errands fresh_;                    // since it last looked
  bool is_watching_ = false;
  bool is_slow_ = false;
  bool is_stopping_ = false;
  Threads threads_{Threads::kNoLimit};
  Threads watcher_{1};
};

}  // namespace drun::worker
