// edge. One helper program (gdb, py-spy ...) run to its end: its output, or that it took too long.
//
// Start:   its exec is not waited for, but counts for the limit.
// Safety:  no shell; stdin is empty; at most 1 MiB of output is taken, then it is killed; it dies
//          with the agent (spawn.h), and is killed at the deadline.
// Reaping: by itself, unless the agent's look for orphans (leftovers.h) was faster.
// Owner:   the caller, at least until `on_end`; stop() or destruction kills it silently.
// Thread:  the io_context's only. `on_end` comes from the loop, once and only once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/process/program_starter.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class Helper {
 public:
  struct End {
    std::string output{};   // stdout and stderr together
    bool is_late = false;   // killed at the deadline
    std::string trouble{};  // why it could not be started; empty: it was
  };

  // `environment`: "NAME=value" lines, read while this runs.
  Helper(asio::io_context& io, ProgramStarter& starter, const std::vector<std::string>& argv,
         std::span<const std::string> environment, std::chrono::milliseconds limit,
         std::function<void(const End&)> on_end);
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper();

  void stop();

  // Also its process group. 0: it has not begun, or has been reaped.
  int pid() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::agent
