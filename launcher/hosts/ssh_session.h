// edge. One ssh to one host, from its start to its end: what is said to the agent there, what comes
// back, and what ssh itself has to say.
//
// Flow:    workers' lines reach the consoles whole and in order; a console that is congested stops
//          the reading, and with it ssh, the agent and its workers. Before Hello the host's own
//          words (a shell's greeting, ssh's complaints) are kept, at most kMostWordsBytes.
// Owner:   the starter. The consoles and `buffer` outlive it. on_ended comes once, after
//          everything that was written has been handed over; nothing comes after it.
// Thread:  the io_context's only.   Errors: an ssh that cannot be started ends with 127 or 126 and
//          the reason as its words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/console.h"
#include "agent/output/gather/line_frames.h"
#include "agent/process.h"
#include "launcher/hosts/hand_over.h"
#include "rendezvous/asio.h"

namespace drun::hosts {

inline constexpr std::size_t kMostWordsBytes = std::size_t{8} << 10;

struct SshSpec {
  std::vector<std::string> argv{};
  std::span<const std::string> environment{};  // "NAME=value" lines, of the session's life
  std::string name{};                          // of the host, in front of its own words
  std::string first_line{};                    // for the agent's standard input
  std::uint64_t stream = 0;                    // three numbers from here on are this session's
};

struct SshConsoles {
  agent::Console& out;
  agent::Console& err;
};

class SshSession {
 public:
  struct Listener {
    std::function<void(const Hello&)> on_hello;
    std::function<void(const End&)> on_end;
    // Rank 0 is there, and has room for so much more input.
    std::function<void(std::size_t bytes)> on_room{};
    // Lines for files; without it there are none.
    std::function<void(const agent::FrameHead&, std::string_view payload)> on_frame{};
    std::function<bool()> is_held_up{};  // nothing is read then, as by a congested console
    std::function<void(int code, const std::string& words)> on_ended;
  };

  SshSession(asio::io_context& io, std::vector<char>& buffer, SshConsoles consoles, SshSpec spec,
             Listener listener);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  void start();
  // A line for the agent; the newline is added. Nothing after let_go().
  void say(const std::string& line);
  // The same for bytes, as they are.
  void send(std::string_view bytes);
  // Ends the agent's standard input.
  void let_go();
  void kill();
  // There is room on a console again.
  void wake();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace drun::hosts
