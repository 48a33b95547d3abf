// edge. `--events FILE`: one line for everything that happens, while it happens.
//
// File:    appended to, so that several agents of one machine may share it (a line is one write);
//          made with 0600 when it is not there. A symbolic link is not followed, but below /dev.
//          A pipe or terminal is never waited for: lines that it does not take are lost.
// Writes:  in a thread of its own (output/file_writer.h): a file system that hangs holds up events
//          and nothing else. At most kMostEventBytes wait; events beyond that are lost.
// Owner:   Agent.   Thread: the io_context's only.
// Errors:  open: System, naming the file and the reason; it blocks, before the job begins. Later
//          ones, and lost events, are logged once.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/event.h"
#include "rendezvous/asio.h"
#include "rendezvous/log.h"
#include "rendezvous/result.h"

namespace drun::agent {

inline constexpr std::size_t kMostEventBytes = std::size_t{1} << 20;

class EventFile {
 public:
  EventFile();  // drops everything
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;
  ~EventFile();
  static Result<EventFile> open(asio::io_context& io, const std::string& path, EventPlace place,
                                Log log);

  void write(const Event& event);

  // After the loop's end: waits until all is written; absent: without a limit.
  void finish(std::optional<std::chrono::milliseconds> at_most);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A WorkerStarted of each; pid 0: it was not.
void write_started(EventFile& events, const World& world, const std::vector<int>& pids);

}  // namespace drun::agent
