#include "tests/support/control_fuzz.h"

#include <cassert>

#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::test {
namespace {

using namespace rendezvous;

// Every decoded message must be the same after it is encoded and decoded again.
void check_frame(std::string_view frame) {
  constexpr std::size_t kLengthBytes = 4;
  if (const auto message = decode_member_message(frame)) {
    const std::string again = encode(*message);
    const auto reread = decode_member_message(std::string_view(again).substr(kLengthBytes));
    assert(reread.has_value() && *reread == *message);
  }
  if (const auto message = decode_coordinator_message(frame)) {
    const std::string again = encode(*message);
    const auto reread = decode_coordinator_message(std::string_view(again).substr(kLengthBytes));
    assert(reread.has_value() && *reread == *message);
  }
}

}  // namespace

void fuzz_control_wire(std::string_view bytes) {
  check_frame(bytes);
  FrameReader reader(kFrameLimitBytes);
  const std::size_t half = bytes.size() / 2;
  for (const std::string_view part : {bytes.substr(0, half), bytes.substr(half)}) {
    reader.push(part);
    if (const auto version = reader.next_preamble(); !version) break;
    for (auto frame = reader.next_frame(); frame && *frame; frame = reader.next_frame())
      check_frame(**frame);
  }
}

}  // namespace drun::test
