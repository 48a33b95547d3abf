// Any handshake message between ranks of a node is either rejected, or means the same when it is
// written again. No slot is assigned twice, or to a rank outside the group.
//
// Input: the size of the group, the number of received descriptors, and a message.
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/shm/connect.h"

namespace {

using namespace drun::worker::shm;
using drun::worker::CoreMask;

constexpr std::uint64_t kSegmentBytes = 4096;

void require(bool is_true) {
  if (!is_true) std::abort();
}

void check_hello(std::string_view text, std::size_t ranks) {
  std::vector<bool> is_there(ranks);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view message = rest.substr(0, sizeof(Hello));
    rest.remove_prefix(message.size());
    const auto hello = parse_hello(message);
    if (!hello) continue;
    require(to_text(*hello) == message);
    // Also checks the message with the group's sizes, as a member would send it.
    for (const Hello& each : {*hello, Hello{.rank = hello->rank,
                                      .size = static_cast<std::uint32_t>(ranks),
                                      .segment_bytes = kSegmentBytes}}) {
      if (!has_place(each, kSegmentBytes, is_there)) continue;
      require(each.rank > 0 && each.rank < ranks && !is_there[each.rank]);
      is_there[each.rank] = true;
      require(!has_place(each, kSegmentBytes, is_there));
    }
  }
}

void check_answer(std::string_view text, std::size_t descriptors) {
  const Answer answer = parse_answer(text, descriptors);
  if (answer.kind == Answer::Kind::Yes) {
    require(descriptors == 2 && to_text(answer) == text);
  } else {
    require(answer.cores == CoreMask{});
    require(parse_answer(to_text(answer), descriptors) == answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  check_hello(text, data[0]);
  check_answer(text, data[1] % 4);
  return 0;
}
