// core. A worker's lines as JSON objects, one a line: --output=json.
//
//   {"time":"2026-11-21T13:03:07.123456Z","node_rank":1,"host":"b","rank":5,"local_rank":1,
//    "role":"default","round":0,"stream":"stdout","text":"epoch 3"}       (on one line)
//
// Lines:   end with '\n', which is not part of the text; '\r' is. Of a longer one than
//          kLongestJsonTextBytes come pieces, all but the last with "partial":true.
// Bytes:   text is UTF-8. Of a line that is not, each wrong byte becomes U+FFFD, and "base64" holds
//          the line as it was.
// Time:    when the line's end was read.
// Owner:   a resource of one stream.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/line_buffer.h"
#include "agent/spec.h"
#include "rendezvous/job/outcome.h"

namespace drun::agent {

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
  // A rest without '\n' is a line, too.
  void end_of_stream(WallTime read_at, std::string& out);

 private:
  void put(std::string_view line, bool is_partial, std::string& out) const;

  std::string fixed_;  // between the time and the text
  std::string head_;   // of this call's lines, up to the text
  std::string held_;
};

// `text` as the inside of a JSON string; false: it was not UTF-8.
bool append_json_text(std::string_view text, std::string& out);

}  // namespace drun::agent

// core. The label in front of a line: torchrun's TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE.
//
// Text:    `${name}` and `$name` are replaced for role_name, local_rank, rank, node_rank, host
//          and hostname, which is the same; `$$` is `$`; a name that is none of these, and a `$`
//          before anything else, stay as they stand. Nothing is added after the label:
//          "[${role_name}${local_rank}]:" gives
//          "[default0]:hello".
// Source:  Python's string.Template.safe_substitute, which torchrun uses; names are exact.
// Errors:  none; every text is a template.   Thread: any.

namespace drun::agent {

struct LabelValues {
  std::string role_name = "default";
  int local_rank = 0;
  int rank = 0;
  int node_rank = 0;
  std::string host;
};

std::string fill_label(std::string_view label_template, const LabelValues& values);

}  // namespace drun::agent

// core. How a worker's lines look on the console: as they are, behind a label, behind a time, or as
// JSON objects.
//
// Owner:   LineFormat: a value. FormattedLines: a resource of one stream; needs the LineQueue
// during its
//          calls alone, and must always get the same one.
// Thread:  any, one at a time.   Errors: none.

namespace drun::agent {

struct LineFormat {
  bool is_json = false;
  bool has_time = false;  // --timestamps
  std::string label;      // empty: none
  LineOrigin origin;
};

// What `spec` says of the lines of one stream.
LineFormat form_of(const OutputSpec& spec, LineOrigin origin, bool is_labelled);
// The label of that stream's lines, whether or not they have one on the console.
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

class FormattedLines {
 public:
  // `stream`, `longest_held_bytes`: line_buffer.h; of JSON line_format.h says how much is held.
  FormattedLines(std::uint64_t stream, LineFormat form,
                 std::size_t longest_held_bytes = kLongestHeldBytes);

  void take(std::string_view bytes, WallTime read_at, LineQueue& queue);
  void end_of_stream(WallTime read_at, LineQueue& queue);

 private:
  void stamp(WallTime read_at);

  LineFormat form_;
  LineBuffer lines_;
  std::optional<JsonLines> json_;
  std::string objects_;
};

}  // namespace drun::agent
