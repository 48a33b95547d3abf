#include "worker_lib/tcp/frames.h"

#include <algorithm>

namespace drun::worker::tcp {
namespace {

constexpr std::string_view kMagic = "DRUNTCP5";
constexpr std::string_view kChallengeMagic = "DRUNASK5";
constexpr std::string_view kFrameMark = "FRAME1";  // after the kind

template <typename Bytes, typename Number>
void put(Bytes& head, std::size_t at, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    head[at + i] = static_cast<char>(static_cast<unsigned char>(number >> (8 * i)));
}

template <typename Number>
Number number_at(std::string_view head, std::size_t at) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    number = static_cast<Number>(
        number | static_cast<Number>(static_cast<unsigned char>(head[at + i])) << (8 * i));
  return number;
}

}  // namespace

// magic 8, key 16, rank 4, size 4, lane 4, zero 4, nonce 16
HelloBytes encode(const Hello& hello) {
  HelloBytes bytes{};
  std::copy(kMagic.begin(), kMagic.end(), bytes.begin());
  std::copy(hello.key.begin(), hello.key.end(), bytes.begin() + 8);
  put(bytes, 24, hello.rank);
  put(bytes, 28, hello.size);
  put(bytes, 32, hello.lane);
  std::copy(hello.nonce.begin(), hello.nonce.end(), bytes.begin() + 40);
  return bytes;
}

// magic 8, nonce 16, proof 32
HelloBytes encode(const Challenge& challenge) {
  HelloBytes bytes{};
  std::copy(kChallengeMagic.begin(), kChallengeMagic.end(), bytes.begin());
  std::copy(challenge.nonce.begin(), challenge.nonce.end(), bytes.begin() + 8);
  std::copy(challenge.proof.begin(), challenge.proof.end(), bytes.begin() + 24);
  return bytes;
}

Head encode(const Frame& frame) {
  Head head{};
  head[0] = static_cast<char>(frame.kind);
  std::copy(kFrameMark.begin(), kFrameMark.end(), head.begin() + 1);
  put(head, 8, frame.slot);
  put(head, 16, frame.number);
  put(head, 24, frame.size_bytes);
  return head;
}

std::optional<Hello> decode_hello(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  Hello hello;
  std::copy_n(bytes.begin() + 8, hello.key.size(), hello.key.begin());
  hello.rank = number_at<std::uint32_t>(bytes, 24);
  hello.size = number_at<std::uint32_t>(bytes, 28);
  hello.lane = number_at<std::uint32_t>(bytes, 32);
  std::copy_n(bytes.begin() + 40, hello.nonce.size(), hello.nonce.begin());
  if (hello.rank >= hello.size || hello.lane >= kMostLanes) return std::nullopt;
  return hello;
}

std::optional<Challenge> decode_challenge(std::string_view bytes) {
  if (!bytes.starts_with(kChallengeMagic)) return std::nullopt;
  Challenge challenge;
  std::copy_n(bytes.begin() + 8, challenge.nonce.size(), challenge.nonce.begin());
  std::copy_n(bytes.begin() + 24, challenge.proof.size(), challenge.proof.begin());
  return challenge;
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
  if (head.substr(1, kFrameMark.size()) != kFrameMark || head[7] != 0) return std::nullopt;
  const auto kind = static_cast<unsigned char>(head[0]);
  if (kind < static_cast<unsigned char>(Frame::Kind::Eager) ||
      kind > static_cast<unsigned char>(Frame::Kind::Credit))
    return std::nullopt;
  const Frame frame{.kind = static_cast<Frame::Kind>(kind),
                    .slot = number_at<std::uint64_t>(head, 8),
                    .number = number_at<std::uint64_t>(head, 16),
                    .size_bytes = number_at<std::uint64_t>(head, 24)};
  std::uint64_t most = 0;
  switch (frame.kind) {
    case Frame::Kind::Eager:
      most = kEagerBytes;
      break;
    case Frame::Kind::Ask:
      most = kMostMessageBytes;
      break;
    case Frame::Kind::Grant:
      break;
    case Frame::Kind::Data:
      most = kPartBytes;
      break;
    case Frame::Kind::Credit:
      most = kWindowBytes;
      break;
  }
  if (frame.size_bytes > most) return std::nullopt;
  return frame;
}

}  // namespace drun::worker::tcp
