// core. Turns bytes into whole lines: many streams (LineBuffer) share one console (LineQueue).
//
// Lines:   a line ends with '\n' and is passed on as one piece. Text without '\n' is held back,
//          except in two cases, in which it is passed on and the line stays *open*:
//          - a progress bar: the unfinished line contains a '\r', so it is meant to be shown at
//            once and overwritten later;
//          - an unfinished line longer than kLongestHeldBytes, because memory is bounded.
//          end_of_stream() passes on a last line without '\n', which stays open too.
// Turns:   text of another stream is never put inside an open line: a '\n' is inserted first, and
//          when the first stream continues, its text starts a new line (with its label; a '\n' that
//          merely ended the line is dropped). Only a bar can follow a bar without '\n', because
//          both start at column 0. A stream never waits for another to finish its line: a worker
//          that waits for the others within a long line would block forever.
// Labels:  before every line, and again after each '\r' that is followed by text. Without labels
//          and without interruption, the output equals the input.
// Thread:  any, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace drun::agent {

inline constexpr std::size_t kLongestHeldBytes = std::size_t{1} << 20;

class LineQueue {
 public:
  LineQueue() = default;
  LineQueue(const LineQueue&) = delete;
  LineQueue& operator=(const LineQueue&) = delete;

  // The lines still to be written, oldest first. Valid until the next call of any method.
  std::string_view bytes() const { return std::string_view(bytes_).substr(consumed_bytes_); }
  std::size_t size_bytes() const { return bytes_.size() - consumed_bytes_; }
  void consume(std::size_t count);
  // Consumes and returns everything.
  std::string take_all();
  void clear();

  // True if the last line has no '\n' yet.
  bool is_open() const { return open_stream_ != 0; }
  // Ends an open line.
  void end_line();
  // Appends bytes outside of lines: text that is erased from the terminal later, or frames of a
  // channel.
  void put_between_lines(std::string_view bytes) { bytes_.append(bytes); }

 private:
  friend class LineBuffer;

  std::string bytes_;
  std::size_t consumed_bytes_ = 0;
  std::uint64_t open_stream_ = 0;  // of the open line; 0: none
  bool open_is_bar_ = false;
  bool is_at_column_zero_ = true;  // the last byte is '\n' or '\r'
};

class LineBuffer {
 public:
  // `stream`: nonzero, and unique among all streams of the queue. `label`: empty for none. Pass the
  // same LineQueue to every call; it is used only during the call.
  LineBuffer(std::uint64_t stream, std::string label,
             std::size_t longest_held_bytes = kLongestHeldBytes);

  void take(std::string_view bytes, LineQueue& queue);

  // Passes on held text at the end of the stream. A labeled last line is ended with '\n'; others
  // are not, so that a program's output is preserved byte for byte.
  void end_of_stream(LineQueue& queue);

  // Applies from the next line on, including held text. Must be empty if and only if the previous
  // label was.
  void set_label(std::string label) { label_ = std::move(label); }

  std::size_t held_bytes() const { return held_.size(); }

 private:
  void pass_on(std::string_view head, std::string_view tail, LineQueue& queue);
  void append(std::string_view bytes, LineQueue& queue);
  void append_labeled(std::string_view bytes, std::string& out);
  void notice_interruption(const LineQueue& queue);
  void begin_turn(std::string_view& text, LineQueue& queue);

  const std::uint64_t stream_;
  std::string label_;
  const std::size_t longest_held_bytes_;
  std::string held_;  // the beginning of the unfinished line, not passed on
  bool held_has_return_ = false;
  bool is_open_ = false;          // the queue ends with the beginning of our unfinished line
  bool was_interrupted_ = false;  // it did, until another stream ended it
  bool needs_label_ = true;       // before the next byte of text
  bool line_has_label_ = false;   // a label was written since the last '\n'
};

// --- Selection of lines that contain any of some substrings: --duplicate-stdout-filters and
// --duplicate-stderr-filters

// One per stream. A line ends with '\n'; end_of_stream() adds it to the last one. Substrings are
// searched in the worker's text, not in the label; empty ones are ignored. A line longer than
// kLongestHeldBytes is matched in pieces of about that size.
class LineFilter {
 public:
  LineFilter(std::vector<std::string> substrings, std::string label);

  // Appends the selected lines to `out`, each with the label.
  void take(std::string_view bytes, std::string& out);
  void end_of_stream(std::string& out);

 private:
  void judge(std::string_view line, std::string& out) const;

  std::vector<std::string> substrings_;
  std::string label_;
  std::string held_;
};

}  // namespace drun::agent
