#include "tests/support/control_fuzz.h"

#include <cassert>

#include "agent/stacks/evidence.h"
#include "agent/status/node_status.h"
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

template <typename Value>
void check_answer(std::string_view bytes, std::string (*encode)(Value),
                  std::optional<Value> (*decode)(std::string_view)) {
  if (const std::optional<Value> value = decode(bytes)) assert(decode(encode(*value)) == value);
}

}  // namespace

void fuzz_control_wire(std::string_view bytes) {
  check_frame(bytes);
  check_answer<Census>(bytes, encode_census, decode_census);
  check_answer<agent::Evidence>(bytes, agent::encode_evidence, agent::decode_evidence);
  check_answer<agent::NodeSummary>(bytes, agent::encode_summary, agent::decode_summary);
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
