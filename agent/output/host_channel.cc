#include "agent/output/host_channel.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <utility>
#include <variant>

#include "rendezvous/protocol/control_wire.h"

namespace drun::agent {
namespace {

constexpr std::string_view kMark =
    "\x1e"
    "drun ";

void put_number(std::string& bytes, std::size_t number) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
}

// Decodes the first 4 bytes.
std::uint32_t number_of(std::string_view bytes) {
  std::uint32_t number = 0;
  for (const char byte : bytes.substr(0, 4))
    number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

bool is_text(FrameType type) { return type == FrameType::Out || type == FrameType::Err; }

FrameType type_of(std::string_view head) { return static_cast<FrameType>(head.front()); }

bool is_valid_head(std::string_view head) {
  const FrameType type = type_of(head);
  return (is_text(type) || type == FrameType::Control || type == FrameType::Lines) &&
         number_of(head.substr(1)) <= kMostPayloadBytes;
}

}  // namespace

std::string frame_head(FrameType type, std::size_t payload_bytes) {
  assert(payload_bytes <= kMostPayloadBytes);
  std::string head(1, static_cast<char>(type));
  put_number(head, payload_bytes);
  return head;
}

std::string to_frame(FrameType type, std::string_view payload) {
  return frame_head(type, payload.size()).append(payload);
}

std::size_t frame_bytes(std::string_view bytes) {
  assert(bytes.size() >= kFrameHeadBytes);
  return kFrameHeadBytes + number_of(bytes.substr(1));
}

std::string preamble(std::string_view nonce) {
  return std::string(kMark).append(nonce).append("\n");
}

void ChannelReader::take(std::string_view bytes, const Listener& listener) {
  if (state_ == State::Login) bytes = take_login(bytes, listener);
  while (state_ == State::Frames && !bytes.empty()) bytes = take_frame(bytes, listener);
  if (state_ == State::Broken && !bytes.empty()) listener.on_stray(bytes);
}

// The preamble's first byte occurs only once in it, so an incomplete match is text up to the next
// such byte.
std::string_view ChannelReader::take_login(std::string_view bytes, const Listener& listener) {
  if (!held_.empty()) {
    const std::size_t wanted = preamble_.size() - held_.size();
    const std::string_view piece = bytes.substr(0, wanted);
    const auto [at, unused] = std::mismatch(piece.begin(), piece.end(),
                                            preamble_.begin() + static_cast<long>(held_.size()));
    const auto same = static_cast<std::size_t>(at - piece.begin());
    if (same == wanted) {
      held_.clear();
      state_ = State::Frames;
      return bytes.substr(wanted);
    }
    if (same == bytes.size()) {
      held_.append(bytes);
      return {};
    }
    listener.on_stray(std::exchange(held_, {}));
  }
  for (std::size_t begin = 0;;) {
    const std::size_t mark = bytes.find(preamble_.front(), begin);
    if (mark == bytes.npos) break;
    const std::string_view rest = bytes.substr(mark);
    if (rest.starts_with(preamble_)) {
      if (mark > 0) listener.on_stray(bytes.substr(0, mark));
      state_ = State::Frames;
      return rest.substr(preamble_.size());
    }
    if (std::string_view(preamble_).starts_with(rest)) {
      if (mark > 0) listener.on_stray(bytes.substr(0, mark));
      held_ = rest;
      return {};
    }
    begin = mark + 1;
  }
  if (!bytes.empty()) listener.on_stray(bytes);
  return {};
}

// Takes one frame, or its received part. Returns the rest.
std::string_view ChannelReader::take_frame(std::string_view bytes, const Listener& listener) {
  const auto hold = [this, &bytes](std::size_t wanted_bytes) {
    const std::size_t size = std::min(wanted_bytes - held_.size(), bytes.size());
    held_.append(bytes.substr(0, size));
    bytes.remove_prefix(size);
    return held_.size() == wanted_bytes;
  };
  if (held_.size() < kFrameHeadBytes) {
    if (!hold(kFrameHeadBytes)) return bytes;
    if (!is_valid_head(held_)) {
      state_ = State::Broken;
      listener.on_stray(std::exchange(held_, {}));
      return bytes;
    }
  }
  const std::size_t whole = frame_bytes(held_);
  const std::size_t payload_bytes = whole - kFrameHeadBytes;
  const FrameType type = type_of(held_);
  if (held_.size() == kFrameHeadBytes && bytes.size() >= payload_bytes) {
    held_.clear();
    listener.on_frame({.type = type, .payload = bytes.substr(0, payload_bytes)});
    return bytes.substr(payload_bytes);
  }
  if (!hold(whole)) return bytes;
  const std::string frame = std::exchange(held_, {});
  listener.on_frame({.type = type, .payload = std::string_view(frame).substr(kFrameHeadBytes)});
  return bytes;
}

void ChannelReader::end_of_stream(const Listener& listener) {
  const std::string rest = std::exchange(held_, {});
  if (rest.empty()) return;
  if (state_ == State::Login) return listener.on_stray(rest);
  if (rest.size() <= kFrameHeadBytes) return;
  const Frame frame{.type = type_of(rest),
                    .payload = std::string_view(rest).substr(kFrameHeadBytes)};
  if (is_text(frame.type)) listener.on_frame(frame);
}

using rendezvous::Lines;
using rendezvous::LinesFrom;

namespace {

constexpr std::size_t kNumberBytes = 4;
constexpr std::size_t kLengthBytes = 4;  // of the length before a message
constexpr std::size_t kMostFrameRank = std::size_t{1} << 30;

std::size_t take_number(std::string_view& bytes) {
  const std::size_t number = number_of(bytes);
  bytes.remove_prefix(kNumberBytes);
  return number;
}

}  // namespace

std::string encode_lines(const LinesFrom& from, const Lines& lines) {
  const std::string message = rendezvous::encode(rendezvous::MemberMessage(lines));
  const std::size_t bytes = 3 * kNumberBytes + from.role.size() + message.size();
  if (bytes > kMostPayloadBytes) return {};
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
  if (node_rank > kMostFrameRank || rank > kMostFrameRank)
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
