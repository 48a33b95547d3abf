#include "agent/output/gather/line_frames.h"

#include <charconv>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/control_wire.h"

namespace drun::agent {

using rendezvous::Lines;
using rendezvous::LinesFrom;

namespace {

constexpr std::size_t kLengthBytes = 4;  // of a message, in front of it
constexpr std::size_t kMostRank = 1 << 30;

// Numbers with one blank between them; empty: something else.
std::vector<std::size_t> numbers_of(std::string_view text) {
  std::vector<std::size_t> numbers;
  for (;;) {
    std::size_t number = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (ec != std::errc() || end == text.data() || numbers.size() == 5) return {};
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return numbers;
    if (!text.starts_with(' ')) return {};
    text.remove_prefix(1);
  }
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
  const std::vector<std::size_t> numbers = numbers_of(line);
  if (numbers.size() < 4) return std::nullopt;
  const std::size_t bytes = numbers[0];
  if (bytes > kMostFrameBytes || numbers[3] > bytes || numbers[1] > kMostRank ||
      numbers[2] > kMostRank)
    return std::nullopt;
  return FrameHead{.payload_bytes = bytes,
                   .node_rank = static_cast<int>(numbers[1]),
                   .rank = static_cast<int>(numbers[2]),
                   .role_bytes = numbers[3],
                   .host = numbers.size() == 5 ? std::optional(numbers[4]) : std::nullopt};
}

std::string to_frame(const FrameHead& head, std::size_t host, std::string_view payload) {
  std::string frame(kFrameMark);
  frame += std::to_string(head.payload_bytes) + " " + std::to_string(head.node_rank) + " " +
           std::to_string(head.rank) + " " + std::to_string(head.role_bytes) + " " +
           std::to_string(host) + "\n";
  return frame.append(payload).append("\n");
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
