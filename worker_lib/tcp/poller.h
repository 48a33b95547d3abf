// edge. The descriptors that one rank waits for, in epoll, and a flag that wakes the waiting
// thread.
//
// Thread:  any; wait(): one at a time.   Errors: throws BackendFailure (System).
#pragma once

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/tcp/sockets.h"

namespace drun::worker::tcp {

class Poller {
 public:
  // The descriptor of an event.
  struct Source {
    enum class Kind : std::uint8_t { WakeFlag, Listener, In, Out };
    Kind kind = Kind::WakeFlag;
    std::uint8_t lane = 0;  // of Out
    std::uint16_t unused = 0;
    std::uint32_t which = 0;  // In: the connection's number; Out: the rank
  };
  static constexpr std::size_t kMostEvents = 64;
  using Events = std::array<epoll_event, kMostEvents>;

  Poller()
      : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_flag_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!epoll_ || !wake_flag_) throw system_failure("cannot wait for connections");
    add(wake_flag_.get(), EPOLLIN, {});
  }

  // `events`: EPOLLIN, EPOLLOUT, ...
  void add(int fd, std::uint32_t events, Source source) const {
    if (!control(EPOLL_CTL_ADD, fd, events, source))
      throw system_failure("cannot wait for a connection");
  }
  void change(int fd, std::uint32_t events, Source source) const {
    control(EPOLL_CTL_MOD, fd, events, source);
  }
  void remove(int fd) const { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // Returns the number of events, which begin the array.
  std::size_t wait(Events& events, int timeout_ms) const {
    const int count =
        epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  static Source source_of(const epoll_event& event) {
    const std::uint64_t bits = event.data.u64;  // a packed field
    return std::bit_cast<Source>(bits);
  }

  void wake() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_flag_.get(), &one, sizeof one);
  }
  // Call it for an event of the wake flag.
  void reset_wake_flag() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_flag_.get(), &count, sizeof count);
  }

 private:
  bool control(int operation, int fd, std::uint32_t events, Source source) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = std::bit_cast<std::uint64_t>(source);
    return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
  }

  UniqueFd epoll_;
  UniqueFd wake_flag_;
};

}  // namespace drun::worker::tcp
