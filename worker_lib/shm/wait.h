// edge. Waiting for another process: first polls as long as a core can be spared, then yields, then
// sleeps on a bell (a futex).
//
// WakeFlag:    a waiting thread sleeps on it; a thread that changes the awaited state rings it. No
// ring
//          is missed: one side makes the change, then checks for sleepers; the other registers as a
//          sleeper, then checks the state again. The check for sleepers is a write, too: either it
//          follows the registration and finds it, or the sleeper finds the change.
// Thread:  any, and any process.
#pragma once

#include <sched.h>

#include "drun/backend.h"
#include "worker_lib/shm/cores.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

// After a change of what is waited for, in any order: wakes who sleeps.
void wake_sleepers(WakeFlag& bell) noexcept;
// The ring is itself the change that is waited for.
void ring(WakeFlag& bell) noexcept;

// How long a rank looks before it sleeps.
struct SpinPolicy {
  int looks = 0;     // without giving the core away
  int yields = 100;  // yielding the core; a sleep costs ten times as much
};
// For `ranks` ranks that may all wait at the same time, bound to `cores` altogether: they look for
// as long as there is a core for each.
SpinPolicy spin_policy_for(int ranks, const CoreMask& cores);

namespace detail {
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// The cache line is about to be written here: asks for it now, while there is other work to do.
inline void claim_line(void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

class Sleeper {
 public:
  explicit Sleeper(WakeFlag& bell) : bell_(bell) { bell_.sleepers.fetch_add(1); }
  ~Sleeper() { bell_.sleepers.fetch_sub(1); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  // Until the bell has rung since `rings` was read, or for no reason; false: past the deadline.
  bool sleep(std::uint32_t rings, Deadline deadline) const;

 private:
  WakeFlag& bell_;
};
}  // namespace detail

// Waits until is_done(); false: the deadline passed first. is_done is called often, and reads the
// state in sequentially consistent order.
template <typename Question>
bool wait_at(WakeFlag& bell, SpinPolicy patience, Deadline deadline, Question&& is_done) {
  for (int i = 0; i < patience.looks; ++i) {
    // A pause lasts as long as two ranks take to hear of each other.
    for (int eager = 0; eager < 8; ++eager) {
      if (is_done()) return true;
    }
    detail::relax();
  }
  for (int i = 0; i < patience.yields; ++i) {
    if (is_done()) return true;
    sched_yield();
  }
  const detail::Sleeper sleeper(bell);
  while (true) {
    const std::uint32_t rings = bell.rings.load();
    if (is_done()) return true;
    if (!sleeper.sleep(rings, deadline)) return is_done();
  }
}

}  // namespace drun::worker::shm
