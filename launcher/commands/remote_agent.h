// edge. Reads lines from a descriptor before there is an event loop. Blocks. Input after the last
// line stays available to the next reader.
// Errors:  Closed at end of file, Timeout, Refused if a line is too long, System.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::hosts {

class LineReader {
 public:
  LineReader(int fd, std::size_t most_bytes) : fd_(fd), most_bytes_(most_bytes) {}

  // Returns a line without its newline. Without `at_most` there is no timeout.
  Result<std::string> read(std::optional<std::chrono::milliseconds> at_most);

  std::string take_rest() { return std::move(held_); }

 private:
  Result<void> read_some(std::optional<std::chrono::steady_clock::time_point> deadline);

  int fd_;
  std::size_t most_bytes_;
  std::string held_;
};

// --- The agent's side of --hosts
//
//   Start -> directory, facts -> HostReport -> NodeSpec -> Hello -> Go -> the job -> End
//
// Start must arrive within kStartAtMost. The other messages have no timeout, because the launcher
// waits for all hosts. A line has at most kMostLineBytes. End of file ends the agent at any time.

inline constexpr std::chrono::seconds kStartAtMost{60};

// Returns the exit code. Changes this process's environment and directory, and forks
// (agent/process/guardian.h): call it before other threads exist, and return its result from main.
int run_from_stdin();

}  // namespace drun::hosts
