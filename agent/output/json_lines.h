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
#include <string>
#include <string_view>

#include "rendezvous/failure.h"

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
  // What is left without '\n' is a line, too.
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
