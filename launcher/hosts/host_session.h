// core. What the starter has of each host: a way to its agent and back, over an ssh of its own
// (ssh_session.h) or over that of another host (branch.h).
//
// Owner:   the starter. on_ended comes once, after everything that was written has been handed
//          over; nothing comes after it.
// Thread:  the io_context's only.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "agent/output/gather/line_frames.h"
#include "launcher/hosts/hand_over.h"

namespace drun::hosts {

struct SessionListener {
  std::function<void(const Hello&)> on_hello;
  std::function<void(const End&)> on_end;
  // Rank 0 is there, and has room for so much more input.
  std::function<void(std::size_t bytes)> on_room{};
  // Lines for files; without it there are none.
  std::function<void(const agent::FrameHead&, std::string_view payload)> on_frame{};
  std::function<bool()> is_held_up{};  // nothing is read then, as by a congested console
  // Of a relay: a line about a host behind it (relay_wire.h).
  std::function<void(std::string_view line)> on_relayed{};
  std::function<void(int code, const std::string& words)> on_ended;
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
  // There is room on a console again.
  virtual void wake() = 0;
};

}  // namespace drun::hosts
