// edge. A timer that is set to when a state machine wants to be asked again, and the clock of
// leases.
//
// Shape:   one point of time at most; setting it again replaces it, to the same one does nothing.
// Owner:   the owner of the machine; destruction cancels it. `on_due` is kept until it ran or was
//          replaced: what keeps its owner alive does so for that long.
// Thread:  the io_context's only. `on_due` comes from the loop, once, never before its time, and
//          never after another time was set.
#pragma once

#include <time.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

// CLOCK_BOOTTIME: unlike CLOCK_MONOTONIC (steady_clock) it counts the time in which the machine is
// suspended, clock_gettime(2). A lease that another node or etcd lets run out meanwhile has ended
// here, too. Its points of time have steady_clock's type, as the state machines know one type, but
// may not be compared with steady_clock::now().
struct LeaseClock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::duration_cast<duration>(std::chrono::seconds(time.tv_sec) +
                                                           std::chrono::nanoseconds(time.tv_nsec)));
  }
};

template <typename Clock>
class ClockTimer {
 public:
  using Time = typename Clock::time_point;

  explicit ClockTimer(asio::io_context& io) : timer_(io) {}

  // Nothing: never.
  template <typename OnDue>
  void set(const std::optional<Time>& due, OnDue on_due) {
    if (due ? is_set_to(*due) : !due_) return;
    if (!due) return cancel();
    due_ = std::make_shared<const Time>(*due);
    timer_.expires_at(*due);
    timer_.async_wait([this, due = std::weak_ptr<const Time>(due_),
                       on_due = std::move(on_due)](const error_code& ec) {
      if (ec || due.expired()) return;
      due_.reset();
      on_due();
    });
  }

  void cancel() {
    due_.reset();
    timer_.cancel();
  }

  // It has expired, but its handler has not run yet.
  bool is_overdue(Time now) const { return due_ && *due_ <= now; }

 private:
  bool is_set_to(Time due) const { return due_ && *due_ == due; }

  asio::basic_waitable_timer<Clock> timer_;
  std::shared_ptr<const Time> due_;  // its handler has a weak one: no other time's may run
};

using DeadlineTimer = ClockTimer<std::chrono::steady_clock>;
// The loop may notice late that a lease has ended while the machine was suspended: code that acts
// on a lease asks is_overdue() first.
using LeaseTimer = ClockTimer<LeaseClock>;

}  // namespace drun::rendezvous
