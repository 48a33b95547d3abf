// core. One Lines after the other on an agent's standard output, for the starter of --hosts,
// between its marked lines (launcher/hosts/hand_over.h).
//
//   0x1e "drun #<bytes> <node rank> <rank> <bytes of role>\n" <role> <message, as on the wire> "\n"
//
// Relays:  put the number of the host behind them into the first line, as its last word.
//
// Shape:   <bytes> is what follows the first newline, without the last one. The message is
//          rendezvous' own (control_wire.h), its length in front.
// Units:   a frame has at most kMostFrameBytes behind its head.
// Owner:   values; a FrameHead is not checked against its payload before parse_frame does it.
// Errors:  Refused. Never throws.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/lines/line_desk.h"
#include "rendezvous/result.h"

namespace drun::agent {

inline constexpr std::string_view kFrameMark =
    "\x1e"
    "drun #";
inline constexpr std::size_t kMostFrameBytes = std::size_t{1} << 20;

struct FrameHead {
  std::size_t payload_bytes = 0;
  int node_rank = 0;
  int rank = 0;
  std::size_t role_bytes = 0;
  std::optional<std::size_t> host{};
  bool operator==(const FrameHead&) const = default;
};

struct FramedLines {
  rendezvous::LinesFrom from{};  // without peer and host
  rendezvous::Lines lines{};
};

// Empty if role and lines are longer than any frame.
std::string to_frame(const rendezvous::LinesFrom& from, const rendezvous::Lines& lines);

// The same frame, of that host.
std::string to_frame(const FrameHead& head, std::size_t host, std::string_view payload);

// `line`: without mark (kFrameMark) and newline. Absent: no head of a frame.
std::optional<FrameHead> parse_frame_head(std::string_view line);
Result<FramedLines> parse_frame(const FrameHead& head, std::string_view payload);

}  // namespace drun::agent
