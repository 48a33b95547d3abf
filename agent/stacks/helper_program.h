// edge. Runs one helper program (gdb, py-spy ...) to its end, with a time limit, and returns its
// output.
//
// Start:   does not wait for the exec, which counts for the limit.
// Safety:  no shell; empty stdin. The program is killed after 1 MiB of output and at the deadline,
//          and it dies with the agent (agent/spawn/spawn.h).
// Reaping: by this class, unless leftovers.h has reaped it before.
// Owner:   the caller, at least until `on_end`. stop() and destruction kill the program without
//          calling it.
// Thread:  the io_context's only. `on_end` is called exactly once, from the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/spawn/program_starter.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class Helper {
 public:
  struct End {
    std::string output{};   // stdout and stderr together
    bool is_late = false;   // killed at the deadline
    std::string trouble{};  // why it could not be started; empty: it was started
  };

  // `environment`: "NAME=value" lines, read while this runs.
  Helper(asio::io_context& io, ProgramStarter& starter, const std::vector<std::string>& argv,
         std::span<const std::string> environment, std::chrono::milliseconds limit,
         std::function<void(const End&)> on_end);
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper();

  void stop();

  // The pid, which is also its process group. 0: not begun, or reaped.
  int pid() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::agent
