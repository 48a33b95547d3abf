// core. Keeps the last error that a program has written to its stderr. What follows it there can be
// far more than the lines that a report shows: the log of a library, or the stacks of other
// threads.
//
// Errors:  the tracebacks of Python, with those that they are chained to, and the lines that
//          is_fatal_line() recognizes; each with up to kMostLinesBehind lines that continue it. The
//          last one of both kinds is kept. Exceptions that Python ignored do not count.
// Cost:    O(1) per line, beyond the search for its end. Up to 4 * kMostErrorBlockBytes.
// Limits:  an error counts only for a while: a program that has handled one continues, and its end
//          has another cause.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/outcome.h"

namespace drun::agent {

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

}  // namespace drun::agent
