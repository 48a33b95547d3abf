// edge. Waits for another process: polls while a core is available, then yields, then sleeps on a
// bell (a futex).
//
// A waiting thread sleeps on the bell, and a thread that changes the awaited state rings it. No
// ring is lost: one side makes the change and then checks for sleepers; the other registers as a
// sleeper and then checks the state again. The check for sleepers is an atomic write too: either it
// follows the registration and sees it, or the sleeper sees the change.
//
// AbortFlag: tells all ranks of a group when it ends, and which of their processes have ended. Each
// of its changes wakes all waiting threads of the segment, which check it.
// Thread:  any, in any process.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/base/cores.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

// Wakes sleeping threads. Call after a change of the awaited state.
void wake_sleepers(WakeFlag& bell) noexcept;
// Rings the bell and wakes sleeping threads. For waits whose awaited change is the ring itself.
void ring(WakeFlag& bell) noexcept;
// As wake_sleepers, after a change that was stored with sequential consistency: only reads the
// bell, whose cache line then stays with the threads that poll it.
inline void wake_sleepers_of_store(WakeFlag& bell) noexcept {
  if (bell.sleepers.load() != 0) ring(bell);
}

// How long a rank polls before it sleeps.
struct SpinPolicy {
  int looks = 0;  // polls that keep the core
  // Polls that yield the core, about 0.3 ms: longer than the other rank needs for some MB. A rank
  // that fell asleep in the middle of a series of long messages made them 5 % slower (measured).
  int yields = 1000;
};
// The policy for `ranks` ranks that may all wait at the same time and are bound to `cores`
// together. They poll only if there is a core for each.
SpinPolicy spin_policy_for(int ranks, const CoreMask& cores);

namespace detail {
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Prefetches a cache line that is about to be written.
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
  // Sleeps until the bell has rung since `rings` was read; can also return spuriously. False if the
  // deadline has passed.
  bool sleep(std::uint32_t rings, Deadline deadline) const;

 private:
  WakeFlag& bell_;
};
}  // namespace detail

// Waits until is_done(). False if the deadline passes first. is_done is called often, and must read
// the state with sequential consistency.
template <typename Question>
bool wait_at(WakeFlag& bell, SpinPolicy spin, Deadline deadline, Question&& is_done) {
  for (int i = 0; i < spin.looks; ++i) {
    // A pause takes about as long as one message between two ranks.
    for (int eager = 0; eager < 8; ++eager) {
      if (is_done()) return true;
    }
    detail::relax();
  }
  // Where other threads use the core, a yield can take milliseconds.
  for (int i = 0; i < spin.yields && coarse_now() < deadline; ++i) {
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

//     quiet --raise--> raised     (permanent; the first reason is kept)
//
// A lost rank does not raise the flag by itself, because it may have done its part of everything.
// An operation that still needs it fails; its group publishes the cause and then aborts, which
// raises the flag.
class AbortFlag {
 public:
  AbortFlag(const Segment& segment, int rank) : segment_(segment), rank_(rank) {}

  // Different after every change.
  std::uint32_t changes() const { return segment_.alarm().changes.load(); }

  void tell_lost(int rank) noexcept;
  bool is_lost(int rank) const { return segment_.lost(rank).load() != 0; }
  std::vector<int> lost_ranks() const;

  bool is_raised() const { return segment_.alarm().reason.load() != 0; }
  // This rank was aborted, because of the rank that check_lost found, if any.
  void raise() noexcept;

  // Throws BackendFailure (PeerLost) for the first of these ranks that is lost, if any.
  void check_lost(const std::vector<int>& ranks) const;
  // If raised: throws PeerLost with the rank of the reason, or Broken if that is this rank.
  void check() const;

 private:
  void wake_all() noexcept;

  Segment segment_;
  int rank_;
  mutable std::atomic<int> found_ = -1;  // first rank found by check_lost
};

}  // namespace drun::worker::shm
