// core. Finds the lines that PyTorch's ProcessGroupNCCL writes to a worker's stderr. Its watchdog
// and its heartbeat monitor report there that a collective timed out, or that they dump the Flight
// Recorder, which drun may have requested. These lines do not show that the program makes progress.
//
//   [rank1]:[E1127 07:18:45.983086335 ProcessGroupNCCL.cpp:1628] [PG ID 0 ...] text
//
// The stack of a call that timed out follows in lines that begin with '#', up to an empty line.
// Text that arrives separately counts as the beginning of a line, because it may follow a progress
// bar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/job/outcome.h"
#include "rendezvous/job/rank_ranges.h"

namespace drun::agent {

class WatchdogLines {
 public:
  // The first line that reports the timeout of a collective; of a long one, the beginning.
  struct Timeout {
    std::string line{};
    WallTime read_at{};
  };

  // Returns the number of bytes that belong to other lines. The beginning of a line that may become
  // one of ProcessGroupNCCL is counted when the line is known.
  std::size_t take(std::string_view bytes, WallTime read_at);
  const std::optional<Timeout>& first_timeout() const { return first_timeout_; }

 private:
  enum class Kind : std::uint8_t { Unknown, Watchdog, Other };

  Kind kind_of_line(bool is_whole) const;

  Kind kind_ = Kind::Unknown;  // of the current line
  std::string head_;           // its first bytes, unless it is Other
  std::size_t held_bytes_ = 0;
  bool follows_watchdog_ = false;
  std::optional<Timeout> first_timeout_;
};

// A collective that timed out, as ranks of one node have reported it.
struct ReportedTimeout {
  RankRanges ranks{};
  std::string call{};  // "all_reduce (number 21)"; empty: not known
  WallTime first{};    // of these reports
  bool operator==(const ReportedTimeout&) const = default;
};

}  // namespace drun::agent
