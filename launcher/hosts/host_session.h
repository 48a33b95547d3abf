// core. What the starter has of each host: a way to its agent and back, over an ssh of its own
// (ssh_session.h) or over that of another host (branch.h).
//
// Owner:   the starter, or a relay. on_ended comes once, after everything that was written has been
// handed
//          over; nothing comes after it.
// Thread:  the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "agent/host_channel.h"

namespace drun::hosts {

struct SessionListener {
  std::function<void(const agent::Frame&)> on_frame;
  // Text outside of frames: of the login, of ssh, of the agent's standard error. In any pieces.
  std::function<void(bool is_stderr, std::string_view text)> on_stray;
  std::function<bool()> is_held_up;  // nothing is read while it is true; wake() when it ends
  // ssh's exit code. `reason`: why it ended, where on_stray has not told; may be empty.
  std::function<void(int code, const std::string& reason)> on_ended;
};

class HostSession {
 public:
  virtual ~HostSession() = default;

  virtual void start() = 0;
  // A line for the agent; the newline is added. Nothing after let_go().
  void say(const std::string& line) { send(line + "\n"); }
  // The same for bytes, as they are.
  virtual void send(std::string_view bytes) = 0;
  // Ends the agent's standard input.
  virtual void let_go() = 0;
  virtual void kill() = 0;
  // What held up the reading may be over.
  virtual void wake() = 0;
};

}  // namespace drun::hosts
