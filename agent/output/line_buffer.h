// core. Bytes in, whole lines out: many streams (LineBuffer) onto one console (LineQueue).
//
// Lines:   a line ends with '\n' and is passed on as one piece. Text without '\n' is held back,
//          except in two cases, in which it is passed on and the line stays *open*:
//          - a progress bar: the unfinished line holds a '\r', so it is meant to be seen at once
//            and drawn over later;
//          - an unfinished line longer than kLongestHeldBytes, because memory is bounded.
//          A last line without '\n' is passed on by end_of_stream() and left open too.
// Turns:   another stream's line never lands inside an open one: a '\n' is put in first, and when
//          the first stream continues its text starts on a new line (with its label; a '\n' that
//          merely ended the line is dropped). Only a bar may follow a bar without '\n', as
//          both draw from column 0. No stream ever waits for another to finish its line: a worker
//          that waits for the others within a long line would block forever.
// Labels:  in front of every line, and again after each '\r' within it that text follows.
//          Without labels and without interruption, the bytes out are the bytes in.
// Owner:   resources; a LineBuffer needs the LineQueue only during its calls, and must always get
//          the same one.    Thread: any, one at a time.    Errors: none.
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

  // The lines that are still to be written, oldest first; valid until the next call of any method.
  std::string_view bytes() const { return std::string_view(bytes_).substr(consumed_bytes_); }
  std::size_t size_bytes() const { return bytes_.size() - consumed_bytes_; }
  void consume(std::size_t count);
  // The same, all of it, and the bytes with it.
  std::string take_all();
  void clear();

  // True when the last byte put in is not '\n'.
  bool is_open() const { return open_stream_ != 0; }
  // Ends an open line.
  void end_line();
  // Bytes outside of lines: those that are drawn on a terminal and erased again, and the frames of
  // a channel.
  void put_between_lines(std::string_view bytes) { bytes_.append(bytes); }

 private:
  friend class LineBuffer;

  std::string bytes_;
  std::size_t consumed_bytes_ = 0;
  std::uint64_t open_stream_ = 0;  // of the open line; 0: none
  bool open_is_bar_ = false;
  bool is_at_column_zero_ = true;  // the last byte put in is '\n' or '\r'
};

class LineBuffer {
 public:
  // `stream` is a number other than 0 that no other stream of the queue ever has. An absent label
  // is the empty one.
  LineBuffer(std::uint64_t stream, std::string label,
             std::size_t longest_held_bytes = kLongestHeldBytes);

  void take(std::string_view bytes, LineQueue& queue);

  // The stream's end: passes on what is held. A labelled last line is ended with '\n'; others
  // are left as they are, so that a program's output stays byte for byte what it wrote.
  void end_of_stream(LineQueue& queue);

  // From the next line on (also before what is held); empty and not empty are not exchanged.
  void set_label(std::string label) { label_ = std::move(label); }

  std::size_t held_bytes() const { return held_.size(); }

 private:
  void pass_on(std::string_view head, std::string_view tail, LineQueue& queue);
  void append(std::string_view bytes, LineQueue& queue);
  void append_labelled(std::string_view bytes, std::string& out);
  void notice_interruption(const LineQueue& queue);
  void begin_turn(std::string_view& text, LineQueue& queue);

  const std::uint64_t stream_;
  std::string label_;
  const std::size_t longest_held_bytes_;
  std::string held_;  // the unfinished line's beginning, not passed on
  bool held_has_return_ = false;
  bool is_open_ = false;          // our unfinished line's beginning is the queue's last text
  bool was_interrupted_ = false;  // ... it was, until another stream ended it
  bool needs_label_ = true;       // before the next byte of text
  bool line_has_label_ = false;   // a label was put since the last '\n'
};

}  // namespace drun::agent

// core. Picks the lines that hold any of some substrings: --duplicate-stdout-filters and its twin.
//
// Lines:   end with '\n'; the last one at end_of_stream() gets one. Substrings are looked for in
//          the worker's own text, not in the label, and never empty (an empty one is left out). A
//          line longer than kLongestHeldBytes is judged by pieces of about that size.
// Owner:   a resource of one stream.   Thread: any, one at a time.   Errors: none.

namespace drun::agent {

class LineFilter {
 public:
  LineFilter(std::vector<std::string> substrings, std::string label);

  // Appends the picked lines, each with the label in front, to `out`.
  void take(std::string_view bytes, std::string& out);
  void end_of_stream(std::string& out);

 private:
  void judge(std::string_view line, std::string& out) const;

  std::vector<std::string> substrings_;
  std::string label_;
  std::string held_;
};

}  // namespace drun::agent
