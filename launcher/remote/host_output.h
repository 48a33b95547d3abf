// edge. Frames of workers' lines that come over ssh, to the starter's console and to its files: one
// directory for the job, with a folder a rank.
//
// Flow:    is_congested() once kMostWaitingHereBytes wait to be passed on (a console that is not
//          read, a slow disk); the sessions read nothing then, until on_room.
// Files:   agent/output/log_files.h's layout, worker numbers being ranks. Names that come over the
//          wire are never part of a path but as numbers.
// Owner:   Starter, as are the consoles, which outlive it.
// Thread:  the io_context's only.   Errors: prepare(): Usage when the directory cannot be used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/output/console.h"
#include "agent/output/gathered_lines.h"
#include "agent/output/host_channel.h"
#include "agent/output/line_buffer.h"
#include "agent/output/log_files.h"
#include "agent/spec.h"
#include "launcher/remote/agent_protocol.h"

// edge. What the starter does with the output of one host: frames of the agent's channel go to the
// consoles and to the starter, text from outside of frames to the console, behind the host's name.
//
// Login:   until Hello the host's own text (a greeting, ssh's complaints) is kept, at most
//          kMostWordsBytes of each stream, to be the reason if there is no Hello. What is beyond
//          that is shown at once, the rest with Hello.
// Owner:   Starter, with the consoles, which outlive it.
// Thread:  the io_context's only.   Errors: none.

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

namespace drun::hosts {

inline constexpr std::size_t kMostWaitingHereBytes = std::size_t{1} << 20;

class HostLines {
 public:
  struct Listener {
    std::function<void()> on_room;
    std::function<void()> on_empty;
  };
  struct Consoles {
    agent::Console& out;
    agent::Console& err;
  };

  HostLines(asio::io_context& io, const Log& log, const OutputSpec& spec, Consoles consoles,
            Listener listener);
  HostLines(const HostLines&) = delete;
  HostLines& operator=(const HostLines&) = delete;

  Result<void> prepare(std::string_view run_id);
  const std::string& place() const { return files_->place(); }

  // `host`: its number, and its name for labels. A payload that is not one of lines is logged once
  // and left out.
  void take(std::size_t host, const std::string& name, std::string_view payload);
  // Nothing comes from there any more.
  void take_end(std::size_t host);

  // There is room on a console again.
  void wake() { gathered_->wake(); }
  bool is_congested() const { return waiting_bytes_ > kMostWaitingHereBytes; }
  // All has been passed on, to files too.
  bool is_empty() const { return gathered_->is_empty() && writer_.is_idle(); }
  // Waits for files no longer.
  void give_up() { writer_.abandon(); }

  // Once, at the end: a directory in which nothing was kept is removed unless it was asked for and
  // the job has `has_run`.
  void finish(bool has_run);

 private:
  void on_taken(std::size_t cost);

  Log log_;
  OutputSpec spec_;
  Listener listener_;
  std::shared_ptr<agent::LogFiles> files_ = std::make_shared<agent::LogFiles>();
  agent::FileWriter writer_;
  std::unique_ptr<agent::GatheredLines> gathered_;
  std::size_t waiting_bytes_ = 0;
  bool has_complained_ = false;
};

}  // namespace drun::hosts
