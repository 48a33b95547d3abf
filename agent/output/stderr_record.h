// core. What drun keeps of a worker's stderr: its last lines, the last error before them, and the
// timeouts that PyTorch's watchdog reports.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/outcome.h"
#include "rendezvous/job/rank_ranges.h"

namespace drun::agent {

// --- The last lines of a stream, which a report shows
//
// Keeps kTailBytes of the stream (up to twice that in memory). Lines have no line ends; of a
// progress bar, only the last state is kept; empty lines at the very end are dropped. The oldest
// line may lack its beginning. A line longer than the limit is cut and ends with "...".

inline constexpr std::size_t kTailBytes = std::size_t{32} << 10;
inline constexpr std::size_t kTailLines = 20;
inline constexpr std::size_t kTailLineBytes = std::size_t{4} << 10;

class Tail {
 public:
  void take(std::string_view bytes);
  // At most kTailBytes.
  std::string_view bytes() const;

 private:
  std::string bytes_;
};

// The last kTailLines of `bytes`, each of at most kTailLineBytes. Without the C++ frames that
// PyTorch prints behind an error, which can be more than that.
std::vector<std::string> last_lines(std::string_view bytes);

// --- The last error. What follows it can be far more than the lines that a report shows: the log
// of a library, or the stacks of other threads.
//
// Errors:  the tracebacks of Python, with those that they are chained to, and the lines that
//          is_fatal_line() recognizes; each with up to kMostLinesBehind lines that continue it. The
//          last one of both kinds is kept. Exceptions that Python ignored do not count.
// Cost:    O(1) per line, beyond the search for its end. Up to 4 * kMostErrorBlockBytes.
// Limits:  an error counts only for a while: a program that has handled one continues, and its end
//          has another cause.

class LastError {
 public:
  static constexpr std::size_t kMostErrorBlockBytes = std::size_t{8} << 10;
  static constexpr std::size_t kMostErrorBlockLines = 60;
  static constexpr std::size_t kMostLinesBehind = 10;
  static constexpr std::chrono::seconds kCountsFor{60};
  static constexpr std::uint64_t kCountsForLines = 2000;

  void take(std::string_view bytes, WallTime read_at);

  // The errors in order, with line ends. Empty if the last `shown_lines` have one, or if there is
  // none that counts.
  std::string before(std::uint64_t shown_lines, WallTime now) const;

 private:
  struct Block {
    std::vector<std::string> lines{};
    std::size_t size_bytes = 0;
    WallTime read_at{};
    std::uint64_t line_number = 0;  // of the line that names the error

    void add(std::string_view line);
  };
  enum class State : std::uint8_t { Other, Traceback, Ignored, BehindException, BehindFatal };

  void carry(std::string_view part);
  void take_line(std::string_view line);
  void take_line_of_traceback(std::string_view line, std::string_view text);
  void begin(Block& block, std::string_view line);
  void continue_block(std::string_view line);

  State state_ = State::Other;
  Block open_;  // a traceback without its last line
  Block exception_;
  Block replaced_;  // the exception before it
  Block fatal_;
  std::size_t lines_behind_ = 0;
  std::size_t foreign_lines_ = 0;  // within a traceback
  bool is_chained_ = false;        // to the exception before
  bool is_ignored_ = false;        // the exception that begins in the next line
  bool may_be_repeated_ = false;   // it was printed before, too
  std::uint64_t line_number_ = 0;
  WallTime read_at_{};
  std::string carried_;  // of a line without an end so far; of a long one, both ends
};

// --- The lines of PyTorch's ProcessGroupNCCL. Its watchdog and its heartbeat monitor report that a
// collective timed out, or that they dump the Flight Recorder, which drun may have requested. These
// lines do not show that the program makes progress.
//
//   [rank1]:[E1127 07:18:45.983086335 ProcessGroupNCCL.cpp:1628] [PG ID 0 ...] text
//
// The stack of a call that timed out follows in lines that begin with '#', up to an empty line.
// Text that arrives separately counts as the beginning of a line, because it may follow a progress
// bar.

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
