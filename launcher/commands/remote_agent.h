// edge. Lines of a descriptor, read one after the other before there is an event loop; what follows
// the last one is kept for whoever goes on reading.
// Thread:  the caller's, which waits.   Errors: Closed at the end of the file, Timeout, Refused for
//          a line that is too long, System.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/base/result.h"

namespace drun::hosts {

class LineReader {
 public:
  LineReader(int fd, std::size_t most_bytes) : fd_(fd), most_bytes_(most_bytes) {}

  // Without the newline. No `at_most`: however long it takes.
  Result<std::string> read(std::optional<std::chrono::milliseconds> at_most);

  std::string take_rest() { return std::move(held_); }

 private:
  Result<void> read_some(std::optional<std::chrono::steady_clock::time_point> deadline);

  int fd_;
  std::size_t most_bytes_;
  std::string held_;
};

}  // namespace drun::hosts

// edge. The other end of --hosts: an agent whose command line comes by its standard input, and who
// starts nothing before it is told to.
//
//   a line Start -> variables, directory, options, plan -> Hello -> "go" -> the job -> End
//
// Bounds:  Start within kStartAtMost and kMostLineBytes; "go" whenever, as the starter waits for
//          all hosts; end of file ends it at any time.

namespace drun::hosts {

inline constexpr std::chrono::seconds kStartAtMost{60};

// Gives the exit code. Changes this process's environment and directory, and forks
// (agent/process/guardian.h): call it while there is one thread only, and return what it gives.
int run_from_stdin();

}  // namespace drun::hosts
