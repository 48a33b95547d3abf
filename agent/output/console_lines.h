// core. The lines of a console: workers' bytes become whole lines (LineBuffer), many streams share
// one console (LineQueue), and each line is unchanged, has a label or a time, or is a JSON object
// (FormattedLines).
//
// Lines:   a line ends with '\n' and is passed on as one piece. Text without '\n' is held back,
//          except in three cases, in which it is passed on and the line stays *open*:
//          - a progress bar: the unfinished line contains a '\r', so it is meant to be shown at
//            once and overwritten later;
//          - a prompt: show_held() was called;
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
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/spec.h"
#include "rendezvous/job/outcome.h"

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
  // Passes on held text, which may be a prompt; the line stays open.
  void show_held(LineQueue& queue);

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

// As many whole lines as fit; of a longer line, a piece.
std::string_view whole_lines_within(std::string_view text, std::size_t most_bytes);

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

// --- JSON objects, one per line: --output=json
//
//   {"time":"2026-11-21T13:03:07.123456Z","node_rank":1,"host":"b","rank":5,"local_rank":1,
//    "role":"default","round":0,"stream":"stdout","text":"epoch 3"}       (on one line)
//
// Lines:   end with '\n', which is not part of the text; '\r' is. A line longer than
//          kLongestJsonTextBytes is split into pieces; all but the last have "partial":true.
// Bytes:   text is UTF-8. In a line that is not, each invalid byte becomes U+FFFD, and "base64"
//          holds the original line.
// Time:    when the line's end was read.

inline constexpr std::size_t kLongestJsonTextBytes = std::size_t{256} << 10;

struct LineOrigin {
  int node_rank = 0;
  std::string host;
  int rank = 0;
  int local_rank = 0;
  std::string role = "default";
  int round = 0;
  bool is_stderr = false;
};

class JsonLines {
 public:
  explicit JsonLines(const LineOrigin& origin);

  // Appends whole lines to `out`.
  void take(std::string_view bytes, WallTime read_at, std::string& out);
  // Also writes a last line without '\n'.
  void end_of_stream(WallTime read_at, std::string& out);

 private:
  void put(std::string_view line, bool is_partial, std::string& out) const;

  std::string fixed_;  // between the time and the text
  std::string head_;   // of the current call's lines, up to the text
  std::string held_;
};

// Appends `text`, escaped for a JSON string. Returns false if it is not UTF-8.
bool append_json_text(std::string_view text, std::string& out);

// --- The label before a line: torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE
//
// The names are role_name, local_rank, rank, node_rank, host and hostname (the same as host), and
// the syntax is Python's (string_template.h). Nothing is added after the label:
// "[${role_name}${local_rank}]:" gives "[default0]:hello".

std::string fill_label(std::string_view label_template, const LineOrigin& origin);

// --- The complete format of a stream

struct LineFormat {
  bool is_json = false;
  bool has_time = false;  // --timestamps
  std::string label;      // empty: none
  LineOrigin origin;
};

// The format of one stream's lines according to `spec`.
LineFormat form_of(const OutputSpec& spec, LineOrigin origin, bool is_labeled);
// The label of that stream's lines, even if the console shows none.
std::string label_of(const OutputSpec& spec, const LineOrigin& origin);

// Where a worker's lines can be read, and their label on the console. Paths are empty if there is
// no file on this node.
struct WorkerLogs {
  std::string stdout_file;
  std::string stderr_file;
  std::string label;
};

struct RankLog {
  std::string path;
  std::string label;
};

// One per stream. Pass the same LineQueue to every call; it is used only during the call.
class FormattedLines {
 public:
  // `stream`, `longest_held_bytes`: see LineBuffer. JSON holds up to kLongestJsonTextBytes instead.
  FormattedLines(std::uint64_t stream, LineFormat form,
                 std::size_t longest_held_bytes = kLongestHeldBytes);

  void take(std::string_view bytes, WallTime read_at, LineQueue& queue);
  // See LineBuffer. JSON has no unfinished lines.
  void show_held(WallTime read_at, LineQueue& queue);
  void end_of_stream(WallTime read_at, LineQueue& queue);

 private:
  void stamp(WallTime read_at);

  LineFormat form_;
  LineBuffer lines_;
  std::optional<JsonLines> json_;
  std::string objects_;
};

}  // namespace drun::agent
