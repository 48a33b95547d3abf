// The first message of a tcp connection, the answer to it and the headers of frames are either
// rejected, or the same when encoded and read again, and within the limits by which the transport
// allocates memory.
//
// Input: the bytes of a connection without payloads. An incomplete rest is ignored.
#include <cstdlib>
#include <string_view>

#include "worker_lib/tcp/frames.h"

namespace {

using namespace drun::worker::tcp;

void require(bool is_true) {
  if (!is_true) std::abort();
}

bool is_same(const Head& head, std::string_view text) {
  return std::string_view(head.data(), head.size()) == text;
}

std::size_t limit_of(Frame::Kind kind) {
  switch (kind) {
    case Frame::Kind::Eager:
      return kEagerBytes;
    case Frame::Kind::Ask:
      return kMostMessageBytes;
    case Frame::Kind::Grant:
      return 0;
    case Frame::Kind::Data:
      return kPartBytes;
    case Frame::Kind::Credit:
      return kWindowBytes;
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.size() >= kHelloBytes) {
    if (const auto challenge = decode_challenge(rest.substr(0, kHelloBytes))) {
      const HelloBytes again = encode(*challenge);
      require(std::string_view(again.data(), again.size()) == rest.substr(0, kHelloBytes));
      rest.remove_prefix(kHelloBytes);
    }
  }
  if (rest.size() >= kHelloBytes) {
    if (const auto hello = decode_hello(rest.substr(0, kHelloBytes))) {
      const HelloBytes again = encode(*hello);
      require(decode_hello(std::string_view(again.data(), again.size())) == hello);
      require(hello->lane < kMostLanes && hello->rank < hello->size);
      require(proven_text(Prover::Caller, *hello, {}, {}) !=
              proven_text(Prover::Called, *hello, {}, {}));
      rest.remove_prefix(kHelloBytes);
    }
  }
  for (; rest.size() >= kHeadBytes; rest.remove_prefix(kHeadBytes)) {
    const std::string_view head = rest.substr(0, kHeadBytes);
    const auto frame = decode_frame(head);
    if (!frame) continue;
    require(is_same(encode(*frame), head));
    require(frame->size_bytes <= limit_of(frame->kind));
  }
  return 0;
}
