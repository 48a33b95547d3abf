#include "worker_lib/tcp/frames.h"

#include <cstring>

namespace drun::worker::tcp {
namespace {

template <typename Message>
Message read(std::string_view bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

// Absent: there is no such kind.
std::optional<std::uint64_t> most_bytes(Frame::Kind kind) {
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
  return std::nullopt;
}

}  // namespace

std::optional<Hello> decode_hello(std::string_view bytes) {
  const auto hello = read<Hello>(bytes);
  const bool is_good =
      hello.magic == Hello{}.magic && hello.rank < hello.size && hello.lane < kMostLanes;
  return is_good ? std::optional(hello) : std::nullopt;
}

std::optional<Challenge> decode_challenge(std::string_view bytes) {
  const auto challenge = read<Challenge>(bytes);
  return challenge.magic == Challenge{}.magic ? std::optional(challenge) : std::nullopt;
}

// All parts have a fixed size.
std::string proven_text(Prover prover, const Hello& hello, const Key& callers_key,
                        const Key& called_nonce) {
  const HelloBytes bytes = encode(hello);
  std::string text(1, static_cast<char>(prover));
  text.append(bytes.begin(), bytes.end());
  text.append(callers_key.begin(), callers_key.end());
  text.append(called_nonce.begin(), called_nonce.end());
  return text;
}

std::optional<Frame> decode_frame(std::string_view head) {
  const auto frame = read<Frame>(head);
  const std::optional<std::uint64_t> most = most_bytes(frame.kind);
  const bool is_good = frame.mark == Frame{}.mark && most && frame.size_bytes <= *most;
  return is_good ? std::optional(frame) : std::nullopt;
}

}  // namespace drun::worker::tcp
