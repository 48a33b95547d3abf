// core. The channel from an agent on another host to the launcher of --hosts: a preamble, then
// frames. Workers do not write to it directly; whatever bytes they print are payload.
//
//   preamble   0x1e "drun " <nonce> "\n"; the launcher creates the nonce and sends it over standard
//              input, so that output of the login shell cannot forge it
//   frame      type (1 byte), length of the payload (4 bytes, big-endian), payload
//
// Reader:  bytes before the preamble are text of the login shell. After an invalid frame header,
//          the rest of the stream is text too: the reader does not search for another frame.
// Errors:  none; every byte sequence is text or frames.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/server/log_collector.h"

namespace drun::agent {

enum class FrameType : char {
  Control = 'C',  // Hello, End (launcher/remote/agent_protocol.h), "room N" (worker_stdin.h)
  Out = 'O',      // text for the launcher's standard output
  Err = 'E',      // text for the launcher's standard error
  Lines = 'L',    // workers' lines for files and console, see FramedLines
};

inline constexpr std::size_t kMostPayloadBytes = std::size_t{5} << 20;
inline constexpr std::size_t kMostTextFrameBytes = std::size_t{64} << 10;
inline constexpr std::size_t kFrameHeadBytes = 5;

struct Frame {
  FrameType type = FrameType::Control;
  std::string_view payload{};
};

// Requires a payload of at most kMostPayloadBytes.
std::string frame_head(FrameType type, std::size_t payload_bytes);
std::string to_frame(FrameType type, std::string_view payload);
// The size of the frame that begins with `bytes`, including its head. Requires a valid head.
std::size_t frame_bytes(std::string_view bytes);
std::string preamble(std::string_view nonce);

class ChannelReader {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_stray;  // text outside of frames, in any pieces
    std::function<void(const Frame&)> on_frame;
  };

  explicit ChannelReader(std::string_view nonce) : preamble_(preamble(nonce)) {}

  // Buffers at most one frame, or a part of the preamble.
  void take(std::string_view bytes, const Listener& listener);
  // Passes on the received part of an unfinished text frame. Other unfinished frames are dropped.
  void end_of_stream(const Listener& listener);

 private:
  enum class State { Login, Frames, Broken };

  std::string_view take_login(std::string_view bytes, const Listener& listener);
  std::string_view take_frame(std::string_view bytes, const Listener& listener);

  std::string preamble_;
  State state_ = State::Login;
  std::string held_;  // part of the preamble or of a frame
};

// --- Payload of a Lines frame
//
//   node rank, rank, bytes of the role (4 bytes each, big-endian), role, message
//
// The message is encoded as in rendezvous (control_wire.h), including its length. Errors: Refused.
// Never throws.

struct FramedLines {
  rendezvous::LinesFrom from{};  // without peer and host
  rendezvous::Lines lines{};
};

// Empty if the result would exceed a frame.
std::string encode_lines(const rendezvous::LinesFrom& from, const rendezvous::Lines& lines);
Result<FramedLines> decode_lines(std::string_view payload);

}  // namespace drun::agent
