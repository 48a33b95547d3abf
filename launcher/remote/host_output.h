// edge. Sends workers' lines, received in frames over ssh, to the launcher's console and to log
// files: one directory for the job, with a folder per rank.
//
// is_congested() is true while more than kMostWaitingHereBytes wait for a blocked console or a slow
// disk. The sessions stop reading until on_room.
//
// Files have the layout of agent/output/log_files.h, with ranks as worker numbers. Paths never
// contain names from the network, only numbers. The consoles must outlive the objects. prepare()
// returns Usage if the directory cannot be used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/output/console.h"
#include "agent/output/console_lines.h"
#include "agent/output/host_channel.h"
#include "agent/output/log_files.h"
#include "agent/output/log_gathering.h"
#include "agent/spec.h"
#include "launcher/remote/agent_protocol.h"

namespace drun::hosts {

// --- Output of one host
//
// Frames of the agent's channel go to the consoles and to the launcher. Text outside the frames
// goes to the console with the host's name.
//
// Until the agent's first message, text of the host (a greeting, errors of ssh) is kept, up to
// kMostWordsBytes per stream, as the reason in case no message arrives. Text above that limit is
// shown at once, the rest with the message. A malformed message counts as a Hello with that
// problem. The consoles must outlive the object.

inline constexpr std::size_t kMostWordsBytes = std::size_t{8} << 10;

struct HostConsoles {
  agent::Console& out;
  agent::Console& err;
};

class HostReceiver {
 public:
  static constexpr std::uint64_t kStreams = 4;

  struct Listener {
    std::function<void(HostReport&&)> on_report;
    std::function<void(LookupAnswers&&)> on_answers;
    std::function<void(const Hello&)> on_hello;
    std::function<void(const End&)> on_end;
    // Rank 0 is on this host and can take `bytes` more bytes of input.
    std::function<void(std::size_t bytes)> on_room{};
    std::function<void(std::string_view payload)> on_lines{};  // of a Lines frame
  };

  // `stream`: the first of kStreams numbers that identify this host on the consoles.
  HostReceiver(HostConsoles consoles, std::string name, std::uint64_t stream, Listener listener);
  HostReceiver(const HostReceiver&) = delete;
  HostReceiver& operator=(const HostReceiver&) = delete;

  void take(const agent::Frame& frame);
  void take_stray(bool is_stderr, std::string_view text);
  // Call when the session has ended. Returns the host's own text if no message has arrived.
  std::string end();

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
  bool has_answered_ = false;
  bool has_hello_ = false;
};

// --- Lines of all hosts

inline constexpr std::size_t kMostWaitingHereBytes = std::size_t{1} << 20;

class HostLines {
 public:
  struct Listener {
    std::function<void()> on_room;
    std::function<void()> on_empty;
  };
  HostLines(asio::io_context& io, const Log& log, const OutputSpec& spec, HostConsoles consoles,
            Listener listener);
  HostLines(const HostLines&) = delete;
  HostLines& operator=(const HostLines&) = delete;

  Result<void> prepare(std::string_view run_id);
  const std::string& place() const { return files_->place(); }

  // `host` is the host's number, `name` its name for labels. An invalid payload is logged once and
  // dropped.
  void take(std::size_t host, const std::string& name, std::string_view payload);
  // Nothing more arrives from `host`.
  void take_end(std::size_t host);

  // A console has room again.
  void wake() { gathered_->wake(); }
  bool is_congested() const { return waiting_bytes_ > kMostWaitingHereBytes; }
  // Whether everything has been passed on, including to files.
  bool is_empty() const { return gathered_->is_empty() && writer_.is_idle(); }
  // Stops waiting for files.
  void give_up() { writer_.abandon(); }

  // Call once, at the end. Removes an empty log directory unless the user named it and the job
  // `has_run`.
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
