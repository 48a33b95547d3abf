// edge. Finishes the messages that a program has started, for as long as the program does not wait
// for them itself: one thread asks after all of them every few milliseconds, by which most move;
// and a thread for each of those that go on in their own finish only.
//
// Threads: one for each, as a message waits for another rank and must not wait behind another
//          message; kMostThreads at most. A message that gets none stays open: its waiter does it,
//          or a thread that becomes free.
// Thread:  start, send and look_after from any.
// Owner:   a group; stop() has all that was sent done, then joins.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_lib/errand.h"
#include "worker_lib/threads.h"

namespace drun::worker {

class Couriers {
 public:
  static constexpr std::size_t kMostThreads = 1024;
  // Messages that may be under way beyond those that have a thread: most are waited for at once.
  static constexpr std::size_t kMostWithoutThread = 256;

  Couriers() = default;
  ~Couriers() { stop(); }
  Couriers(const Couriers&) = delete;
  Couriers& operator=(const Couriers&) = delete;

  // Before a message is started that send or look_after will be given. Throws BackendFailure
  // (System) where the system allows no thread for it, or where earlier messages still wait for
  // one.
  void start();
  // Done by its waiter, or by a thread of its own: when the program has asked whether it is done,
  // or does not wait for it within a few milliseconds.
  std::shared_ptr<Errand> send(Errand::Deed deed);
  // To be asked after until it is done: every millisecond, every ten where it takes long. Requires
  // one whose end can be asked for.
  void look_after(std::shared_ptr<Errand> errand);
  // Afterwards nothing may be sent. The second call does nothing.
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
  std::atomic<std::size_t> open_ = 0;            // of those sent: not begun yet
  std::atomic<std::size_t> without_thread_ = 0;  // of these: there was none when last asked
  Threads threads_{kMostThreads};
  Threads watcher_{1};
};

}  // namespace drun::worker
