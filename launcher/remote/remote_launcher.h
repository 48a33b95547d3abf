// edge. Reads the launcher's standard input for rank 0 (--stdin=rank0), but no more than rank 0's
// host has room for.
//
// O_NONBLOCK belongs to the open file description, which the shell shares, so it is not set.
// Instead an epoll instance waits for input. Files are not supported by epoll but never block. A
// terminal stays in line mode; Ctrl-D ends the input. An input that cannot be read counts as ended.
// stop() releases the event loop.
// Thread:  the io_context's only.   Errors: one that cannot be read has ended.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "launcher/hosts/host_plan.h"
#include "launcher/remote/launch_machine.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::hosts {

class LauncherInput {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // once
  };

  LauncherInput(asio::io_context& io, int fd, Listener listener);
  LauncherInput(const LauncherInput&) = delete;
  LauncherInput& operator=(const LauncherInput&) = delete;

  // Allows reading `bytes` bytes from now on.
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

// --- The launcher: sessions, consoles, signals and a timer around the state machine
// (launch_machine.h)

// Runs the job of `plan` from the first login to the end of the last session, with its own
// io_context. All output of the hosts has been written to fd 1 and 2 when it returns.
// `own_facts`: of this machine; its environment is also that of each ssh. Never throws.
LaunchEnd run_launcher(const HostPlan& plan, const HostFacts& own_facts, const Log& log);

}  // namespace drun::hosts
