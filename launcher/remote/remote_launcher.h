// edge. The starter's standard input, read for rank 0 (--stdin=rank0) as far as there is room for
// it there, and not before.
//
// Why:     O_NONBLOCK belongs to the open file description, which the shell shares: it is not set.
//          So the descriptor is waited for by an epoll of our own, and read when it has something;
//          what epoll does not take, a file, never blocks.
// Terminal: as it is, line by line; Ctrl-D is the end.
// Owner:   Starter; stop() ends what keeps the loop alive.
// Thread:  the io_context's only.   Errors: one that cannot be read has ended.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "launcher/plan/host_plan.h"
#include "launcher/remote/launch_machine.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::hosts {

class StarterInput {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // once
  };

  StarterInput(asio::io_context& io, int fd, Listener listener);
  StarterInput(const StarterInput&) = delete;
  StarterInput& operator=(const StarterInput&) = delete;

  // So many bytes may be read, in all, from now on.
  void set_room(std::size_t bytes);
  std::size_t room() const { return room_bytes_; }
  bool has_ended() const { return has_ended_; }
  void stop();

 private:
  bool open();
  void wait();
  void read_some();
  void end();

  int fd_;
  Listener listener_;
  asio::posix::stream_descriptor readiness_;
  bool is_file_ = false;
  bool is_waiting_ = false;
  bool has_ended_ = false;
  bool is_stopped_ = false;
  std::size_t room_bytes_ = 0;
};

}  // namespace drun::hosts

// edge. The starter: ssh sessions, consoles, signals and a timer around the machine that decides
// (launch_machine.h).
// Thread:  the one that calls; it has an io_context of its own.

namespace drun::hosts {

struct StarterStyle {
  std::string invoked_as{};
  int columns = 0;
  bool has_colour = false;
  long utc_offset_s = 0;
};

// Runs the job of `plan` from the first login to the last session's end; what the hosts print has
// then been written to fd 1 and 2. `environment`: of each ssh. Never throws.
LaunchEnd run_starter(const HostPlan& plan, const std::vector<EnvironmentEntry>& environment,
                      const StarterStyle& style, const Log& log);

}  // namespace drun::hosts
