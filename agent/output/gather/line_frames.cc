#include "agent/output/gather/line_frames.h"

#include <charconv>
#include <utility>
#include <variant>

#include "rendezvous/control_wire.h"

namespace drun::agent {

using rendezvous::Lines;
using rendezvous::LinesFrom;

namespace {

constexpr std::size_t kLengthBytes = 4;  // of a message, in front of it
constexpr std::size_t kMostRank = 1 << 30;

// A number, and the blank after it unless it is the last.
std::optional<std::size_t> take_number(std::string_view& text, bool is_last) {
  std::size_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || end == text.data()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (is_last) return text.empty() ? std::optional(number) : std::nullopt;
  if (!text.starts_with(' ')) return std::nullopt;
  text.remove_prefix(1);
  return number;
}

}  // namespace

std::string to_frame(const LinesFrom& from, const Lines& lines) {
  const std::string message = rendezvous::encode(rendezvous::MemberMessage(lines));
  const std::size_t bytes = from.role.size() + message.size();
  if (bytes > kMostFrameBytes) return {};
  std::string frame(kFrameMark);
  frame += std::to_string(bytes) + " " + std::to_string(from.node_rank) + " " +
           std::to_string(from.rank) + " " + std::to_string(from.role.size()) + "\n";
  frame.reserve(frame.size() + bytes + 1);
  return frame.append(from.role).append(message).append("\n");
}

std::optional<FrameHead> parse_frame_head(std::string_view line) {
  const auto bytes = take_number(line, false);
  const auto node_rank = bytes ? take_number(line, false) : std::nullopt;
  const auto rank = node_rank ? take_number(line, false) : std::nullopt;
  const auto role_bytes = rank ? take_number(line, true) : std::nullopt;
  if (!role_bytes || *bytes > kMostFrameBytes || *role_bytes > *bytes || *node_rank > kMostRank ||
      *rank > kMostRank)
    return std::nullopt;
  return FrameHead{.payload_bytes = *bytes,
                   .node_rank = static_cast<int>(*node_rank),
                   .rank = static_cast<int>(*rank),
                   .role_bytes = *role_bytes};
}

Result<FramedLines> parse_frame(const FrameHead& head, std::string_view payload) {
  const std::size_t before = head.role_bytes + kLengthBytes;
  if (payload.size() != head.payload_bytes || payload.size() < before)
    return Error{ErrorCode::Refused, "a frame of lines: too short"};
  Result<rendezvous::MemberMessage> message =
      rendezvous::decode_member_message(payload.substr(before));
  if (!message) return with_context(message.error(), "a frame of lines");
  auto* lines = std::get_if<Lines>(&*message);
  if (lines == nullptr) return Error{ErrorCode::Refused, "a frame of lines: another message"};
  return FramedLines{.from = {.node_rank = head.node_rank,
                              .rank = head.rank,
                              .role = std::string(payload.substr(0, head.role_bytes))},
                     .lines = std::move(*lines)};
}

}  // namespace drun::agent
