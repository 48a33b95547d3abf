// core. Workers' lines as the payload of a frame (agent/host_channel.h): from an agent to the
// starter of --hosts.
//
//   node rank, rank, bytes of the role (4 bytes each, big-endian), role, message
//
// Shape:   the message is rendezvous' own (control_wire.h), its length in front.
// Errors:  Refused. Never throws.   Owner: values.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/lines/line_desk.h"
#include "rendezvous/result.h"

namespace drun::agent {

struct FramedLines {
  rendezvous::LinesFrom from{};  // without peer and host
  rendezvous::Lines lines{};
};

// Empty if role and lines are longer than any frame.
std::string encode_lines(const rendezvous::LinesFrom& from, const rendezvous::Lines& lines);
Result<FramedLines> decode_lines(std::string_view payload);

}  // namespace drun::agent
