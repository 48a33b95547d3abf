// edge. A timer that is set to when a state machine wants to be asked again.
//
// Shape:   one point of time at most; setting it again replaces it, to the same one does nothing.
// Owner:   who owns the machine; destruction cancels it. `on_due` is kept until it has run or was
//          replaced: what keeps its owner alive does so for that long.
// Thread:  the io_context's only. `on_due` comes from the loop, once, never before its time, and
//          never after another time was set.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/asio.h"

namespace drun::rendezvous {

class DeadlineTimer {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit DeadlineTimer(asio::io_context& io) : timer_(io) {}

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

  // Its time has come, but not its turn in the loop.
  bool is_overdue(Time now) const { return due_ && *due_ <= now; }

 private:
  bool is_set_to(Time due) const { return due_ && *due_ == due; }

  asio::steady_timer timer_;
  std::shared_ptr<const Time> due_;  // its handler has a weak one: no other time's may run
};

}  // namespace drun::rendezvous
