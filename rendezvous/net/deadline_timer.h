// edge. A timer for the next tick of a state machine, and the clock of leases.
//
// Shape:   holds at most one time. Setting another time replaces it; setting the same one has no
//          effect.
// Owner:   the owner of the state machine; destruction cancels the timer. The timer keeps `on_due`,
//          and everything that it captures, until it has run or is replaced.
// Calls:   `on_due` comes from the loop, once, never before its time, and never after another time
//          was set.
#pragma once

#include <time.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/net/asio.h"

namespace drun::rendezvous {

// CLOCK_BOOTTIME: unlike CLOCK_MONOTONIC (steady_clock), it includes the time in which the machine
// is suspended, clock_gettime(2). A lease that expires on another node or in etcd during that time
// therefore also expires here. Its time points have steady_clock's type because the state machines
// use only that type, but must not be compared with steady_clock::now().
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

  // `due`: nullopt for never.
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

  // Whether the time has passed, but the handler has not run yet.
  bool is_overdue(Time now) const { return due_ && *due_ <= now; }

 private:
  bool is_set_to(Time due) const { return due_ && *due_ == due; }

  asio::basic_waitable_timer<Clock> timer_;
  std::shared_ptr<const Time> due_;  // handlers of other times find their weak_ptr expired
};

using DeadlineTimer = ClockTimer<std::chrono::steady_clock>;
// After a suspension, the loop may run a handler late: code that acts under a lease checks
// is_overdue() first.
using LeaseTimer = ClockTimer<LeaseClock>;

}  // namespace drun::rendezvous
