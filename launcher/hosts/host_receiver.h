// edge. What the starter does with the output of one host: frames of the agent's channel go to the
// consoles and to the starter, text from outside of frames to the console, behind the host's name.
//
// Login:   until Hello the host's own text (a greeting, ssh's complaints) is kept, at most
//          kMostWordsBytes of each stream, to be the reason if there is no Hello. What is beyond
//          that is shown at once, the rest with Hello.
// Owner:   Starter, with the consoles, which outlive it.
// Thread:  the io_context's only.   Errors: none.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "agent/host_channel.h"
#include "agent/output/console.h"
#include "agent/output/line_buffer.h"
#include "launcher/hosts/hand_over.h"

namespace drun::hosts {

inline constexpr std::size_t kMostWordsBytes = std::size_t{8} << 10;

struct HostConsoles {
  agent::Console& out;
  agent::Console& err;
};

class HostReceiver {
 public:
  static constexpr std::uint64_t kStreams = 4;

  struct Listener {
    std::function<void(const Hello&)> on_hello;
    std::function<void(const End&)> on_end;
    // Rank 0 is there, and takes that many more bytes of input.
    std::function<void(std::size_t bytes)> on_room{};
    std::function<void(std::string_view payload)> on_lines{};  // of a Lines frame
  };

  // `stream`: kStreams numbers from here on are this host's on the consoles.
  HostReceiver(HostConsoles consoles, std::string name, std::uint64_t stream, Listener listener);
  HostReceiver(const HostReceiver&) = delete;
  HostReceiver& operator=(const HostReceiver&) = delete;

  void take(const agent::Frame& frame);
  void take_stray(bool is_stderr, std::string_view text);
  // The session has ended. Gives the host's own words if it never said Hello.
  std::string end();

  bool is_held_up() const { return consoles_.out.is_congested() || consoles_.err.is_congested(); }

 private:
  struct Stray {
    agent::LineBuffer lines;
    std::string words;  // not shown yet
  };

  void take_control(std::string_view text);
  void show_words(Stray& stray, std::size_t bytes);
  void show_words();
  void put(agent::LineBuffer& lines, std::string_view bytes, agent::Console& console);

  HostConsoles consoles_;
  Listener listener_;
  agent::LineBuffer out_lines_;
  agent::LineBuffer err_lines_;
  std::array<Stray, 2> stray_;  // [0 stdout, 1 stderr]
  bool has_hello_ = false;
};

}  // namespace drun::hosts
