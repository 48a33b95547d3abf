// core. How a worker's lines look on the console: as they are, behind a label, behind a time, or as
// JSON objects.
//
// Owner:   LineForm: a value. FormedLines: a resource of one stream; needs the LineQueue during its
//          calls alone, and must always get the same one.
// Thread:  any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/output/json_lines.h"
#include "agent/output/line_buffer.h"
#include "agent/spec.h"
#include "rendezvous/failure.h"

namespace drun::agent {

struct LineForm {
  bool is_json = false;
  bool has_time = false;  // --timestamps
  std::string label;      // empty: none
  LineOrigin origin;
};

// What `spec` says of the lines of one stream.
LineForm form_of(const OutputSpec& spec, LineOrigin origin, bool is_labelled);
// The label of that stream's lines, whether or not they have one on the console.
std::string label_of(const OutputSpec& spec, const LineOrigin& origin);

class FormedLines {
 public:
  // `stream`, `longest_held_bytes`: line_buffer.h; of JSON json_lines.h says how much is held.
  FormedLines(std::uint64_t stream, LineForm form,
              std::size_t longest_held_bytes = kLongestHeldBytes);

  void take(std::string_view bytes, WallTime read_at, LineQueue& queue);
  void end_of_stream(WallTime read_at, LineQueue& queue);

 private:
  void stamp(WallTime read_at);

  LineForm form_;
  LineBuffer lines_;
  std::optional<JsonLines> json_;
  std::string objects_;
};

}  // namespace drun::agent
