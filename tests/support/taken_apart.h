// Parses a channel whose bytes arrive in pieces.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/output/host_channel.h"

namespace drun::test {

inline constexpr std::string_view kNonce = "00112233445566778899aabbccddeeff";

struct Taken {
  agent::FrameType type = agent::FrameType::Control;
  std::string payload{};
  bool operator==(const Taken&) const = default;
};

struct Parts {
  std::string stray;  // outside of frames
  std::vector<Taken> frames;
  bool operator==(const Parts&) const = default;
};

// Passes `piece` bytes at a time, then ends the stream.
inline Parts taken_apart(std::string_view bytes, std::size_t piece,
                         std::string_view nonce = kNonce) {
  Parts parts;
  const agent::ChannelReader::Listener listener{
      .on_stray = [&parts](std::string_view text) { parts.stray += text; },
      .on_frame =
          [&parts](const agent::Frame& frame) {
            parts.frames.push_back({frame.type, std::string(frame.payload)});
          }};
  agent::ChannelReader reader(nonce);
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    reader.take(bytes.substr(at, piece), listener);
  reader.end_of_stream(listener);
  return parts;
}

}  // namespace drun::test
