// core. Formats a worker's lines for the console: unchanged, with a label, with a time, or as JSON
// objects.
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
// `${name}` and `$name` are replaced for role_name, local_rank, rank, node_rank, host and hostname
// (the same as host); `$$` becomes `$`. Unknown names, and a `$` before anything else, are left
// unchanged. Nothing is added after the label: "[${role_name}${local_rank}]:" gives
// "[default0]:hello". Follows Python's string.Template.safe_substitute, which torchrun uses.

struct LabelValues {
  std::string role_name = "default";
  int local_rank = 0;
  int rank = 0;
  int node_rank = 0;
  std::string host;
};

std::string fill_label(std::string_view label_template, const LabelValues& values);

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
  void end_of_stream(WallTime read_at, LineQueue& queue);

 private:
  void stamp(WallTime read_at);

  LineFormat form_;
  LineBuffer lines_;
  std::optional<JsonLines> json_;
  std::string objects_;
};

}  // namespace drun::agent
