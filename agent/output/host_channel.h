// core. The channel from an agent on another host to the starter of --hosts: a preamble, then
// frames. Workers never write to it themselves, so whatever bytes they print are payload.
//
//   preamble   0x1e "drun " <nonce> "\n"; the starter makes the nonce and sends it over standard
//              input, so nothing that a login prints can forge it
//   frame      type (1 byte), length of the payload (4 bytes, big-endian), payload
//
// Reader:  bytes before the preamble are text of the login. Bytes from a head on that is not valid
//          are text too, to the end of the stream: the reader does not look for another frame.
// Errors:  none; every byte sequence is text or frames.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/coordinator/log_collector.h"

namespace drun::agent {

enum class FrameType : char {
  Control = 'C',  // Hello, End (launcher/remote/agent_protocol.h), "room N" (worker_stdin.h)
  Out = 'O',      // text for the starter's standard output
  Err = 'E',      // text for its standard error
  Lines = 'L',    // workers' lines for files and console (agent/output/host_channel.h)
  Relayed = 'R',  // from a host behind a relay, see RelayedFrame
  // Only in a RelayedFrame: written by the relay itself.
  StrayOut = 'o',  // what ssh's standard output had outside of frames
  StrayErr = 'e',  // what ssh's standard error had
  Ended = 'X',     // ssh has ended; its exit code in decimal
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
// Of the frame that begins with `bytes`, head included. Requires a valid head.
std::size_t frame_bytes(std::string_view bytes);
std::string preamble(std::string_view nonce);

// A relay's frame about a host behind it: the host's number (4 bytes, big-endian), a type, the
// payload. Its payload may have kMostPayloadBytes less kRelayedHeadBytes.
inline constexpr std::size_t kRelayedHeadBytes = 5;
struct RelayedFrame {
  std::uint32_t host = 0;
  Frame frame{};
};
std::string relayed_frame(std::uint32_t host, const Frame& frame);
// Of a Relayed frame's payload. Absent: not one that a relay writes.
std::optional<RelayedFrame> parse_relayed(std::string_view payload);

class ChannelReader {
 public:
  struct Listener {
    std::function<void(std::string_view)> on_stray;  // text outside of frames, in any pieces
    std::function<void(const Frame&)> on_frame;
  };

  explicit ChannelReader(std::string_view nonce) : preamble_(preamble(nonce)) {}

  // Holds back at most one frame, or a part of the preamble.
  void take(std::string_view bytes, const Listener& listener);
  // A frame of text that the end of the stream cuts is passed on as far as it came; of others
  // nothing is.
  void end_of_stream(const Listener& listener);

 private:
  enum class State { Login, Frames, Broken };

  std::string_view take_login(std::string_view bytes, const Listener& listener);
  std::string_view take_frame(std::string_view bytes, const Listener& listener);

  std::string preamble_;
  State state_ = State::Login;
  std::string held_;  // a part of the preamble, or of a frame
};

}  // namespace drun::agent

// core. Workers' lines as the payload of a frame (agent/output/host_channel.h): from an agent to
// the starter of --hosts.
//
//   node rank, rank, bytes of the role (4 bytes each, big-endian), role, message
//
// Shape:   the message is rendezvous' own (control_wire.h), its length in front.
// Errors:  Refused. Never throws.   Owner: values.   Thread: any.

namespace drun::agent {

struct FramedLines {
  rendezvous::LinesFrom from{};  // without peer and host
  rendezvous::Lines lines{};
};

// Empty if role and lines are longer than any frame.
std::string encode_lines(const rendezvous::LinesFrom& from, const rendezvous::Lines& lines);
Result<FramedLines> decode_lines(std::string_view payload);

}  // namespace drun::agent
