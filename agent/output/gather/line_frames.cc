#include "agent/output/gather/line_frames.h"

#include <cstdint>
#include <utility>
#include <variant>

#include "agent/host_channel.h"
#include "rendezvous/control_wire.h"

namespace drun::agent {

using rendezvous::Lines;
using rendezvous::LinesFrom;

namespace {

constexpr std::size_t kNumberBytes = 4;
constexpr std::size_t kLengthBytes = 4;  // of a message, in front of it
constexpr std::size_t kMostRank = std::size_t{1} << 30;
// A relay puts the host's number in front.
constexpr std::size_t kMostBytes = kMostPayloadBytes - kRelayedHeadBytes;

void put_number(std::string& bytes, std::size_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
}

std::size_t take_number(std::string_view& bytes) {
  std::size_t number = 0;
  for (const char byte : bytes.substr(0, kNumberBytes))
    number = number << 8 | static_cast<unsigned char>(byte);
  bytes.remove_prefix(kNumberBytes);
  return number;
}

}  // namespace

std::string encode_lines(const LinesFrom& from, const Lines& lines) {
  const std::string message = rendezvous::encode(rendezvous::MemberMessage(lines));
  const std::size_t bytes = 3 * kNumberBytes + from.role.size() + message.size();
  if (bytes > kMostBytes) return {};
  std::string payload;
  payload.reserve(bytes);
  put_number(payload, static_cast<std::size_t>(from.node_rank));
  put_number(payload, static_cast<std::size_t>(from.rank));
  put_number(payload, from.role.size());
  return payload.append(from.role).append(message);
}

Result<FramedLines> decode_lines(std::string_view payload) {
  if (payload.size() < 3 * kNumberBytes)
    return Error{ErrorCode::Refused, "a frame of lines: too short"};
  const std::size_t node_rank = take_number(payload);
  const std::size_t rank = take_number(payload);
  const std::size_t role_bytes = take_number(payload);
  if (node_rank > kMostRank || rank > kMostRank)
    return Error{ErrorCode::Refused, "a frame of lines: no such rank"};
  if (payload.size() < kLengthBytes || role_bytes > payload.size() - kLengthBytes)
    return Error{ErrorCode::Refused, "a frame of lines: too short"};
  Result<rendezvous::MemberMessage> message =
      rendezvous::decode_member_message(payload.substr(role_bytes + kLengthBytes));
  if (!message) return with_context(message.error(), "a frame of lines");
  auto* lines = std::get_if<Lines>(&*message);
  if (lines == nullptr) return Error{ErrorCode::Refused, "a frame of lines: another message"};
  return FramedLines{.from = {.node_rank = static_cast<int>(node_rank),
                              .rank = static_cast<int>(rank),
                              .role = std::string(payload.substr(0, role_bytes))},
                     .lines = std::move(*lines)};
}

}  // namespace drun::agent
