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

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "agent/output/gather/gathered_lines.h"
#include "agent/output/gather/line_frames.h"
#include "agent/output/log_files.h"
#include "agent/spec.h"

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
