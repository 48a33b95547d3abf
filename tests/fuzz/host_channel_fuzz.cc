// Fuzzes the channel from a remote agent: for every byte sequence and every division into pieces,
// text is neither lost nor changed nor taken for a message.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/output/host_channel.h"

namespace {

using namespace drun::agent;

void require(bool is_true) {
  if (!is_true) std::abort();
}

// Depends on the whole input, so that no input can contain its nonce.
std::string nonce_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
  std::string nonce;
  for (int shift = 60; shift >= 0; shift -= 4) nonce += "0123456789abcdef"[hash >> shift & 15];
  return nonce;
}

struct Seen {
  std::string stray;
  std::vector<std::pair<FrameType, std::string>> frames;
  bool operator==(const Seen&) const = default;
};

class Reading {
 public:
  explicit Reading(std::string_view nonce) : reader_(nonce) {}
  void take(std::string_view bytes, std::size_t piece) {
    for (std::size_t at = 0; at < bytes.size(); at += piece)
      reader_.take(bytes.substr(at, piece), listener_);
  }
  const Seen& end() {
    reader_.end_of_stream(listener_);
    return seen_;
  }
  const Seen& seen() const { return seen_; }

 private:
  Seen seen_;
  ChannelReader reader_;
  ChannelReader::Listener listener_{
      .on_stray = [this](std::string_view text) { seen_.stray += text; },
      .on_frame =
          [this](const Frame& frame) {
            seen_.frames.emplace_back(frame.type, std::string(frame.payload));
          }};
};

// The bytes are printed by a login, so all of them are text.
void check_login(std::string_view bytes, const std::string& nonce, std::size_t piece) {
  Reading reading(nonce);
  reading.take(bytes, piece);
  require(reading.end() == Seen{.stray = std::string(bytes), .frames = {}});
}

// Workers print the bytes in pieces between an agent's messages. They arrive as text, and only the
// agent's messages arrive as messages.
void check_workers(std::string_view bytes, const std::string& nonce, std::size_t piece) {
  Seen expected{.stray = "Welcome\n", .frames = {}};
  expected.frames.emplace_back(FrameType::Control, "hello");
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = 1 + static_cast<unsigned char>(bytes[at]);
    const FrameType type = size % 2 == 0 ? FrameType::Out : FrameType::Err;
    expected.frames.emplace_back(type, bytes.substr(at, size));
    at += size;
  }
  expected.frames.emplace_back(FrameType::Control, "end");
  std::string stream = expected.stray + preamble(nonce);
  for (const auto& [type, payload] : expected.frames) stream += to_frame(type, payload);
  Reading reading(nonce);
  reading.take(stream, piece);
  require(reading.end() == expected);
}

// Another program writes the bytes after the preamble. The output, joined again, equals the input
// except for an incomplete last frame.
void check_foreign(std::string_view bytes, const std::string& nonce, std::size_t piece) {
  Reading reading(nonce);
  reading.take(preamble(nonce), piece);
  reading.take(bytes, piece);
  std::string again;
  for (const auto& [type, payload] : reading.seen().frames) again += to_frame(type, payload);
  again += reading.seen().stray;
  require(bytes.starts_with(again));
  const std::string_view rest = bytes.substr(again.size());
  require(rest.empty() || reading.seen().stray.empty());
  require(rest.size() < kFrameHeadBytes || rest.size() < frame_bytes(rest));
  Reading whole(nonce);
  whole.take(preamble(nonce) + std::string(bytes), preamble(nonce).size() + bytes.size() + 1);
  require(whole.end() == reading.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string nonce = nonce_of(bytes);
  const std::size_t piece = size == 0 ? 1 : 1 + data[size - 1] % 67;
  check_login(bytes, nonce, piece);
  check_workers(bytes, nonce, piece);
  check_foreign(bytes, nonce, piece);
  if (const auto lines = decode_lines(bytes)) {
    const auto again = decode_lines(encode_lines(lines->from, lines->lines));
    require(again && again->lines == lines->lines && again->from.rank == lines->from.rank &&
            again->from.role == lines->from.role);
  }
  return 0;
}
