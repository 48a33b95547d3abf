// core. The protocol between two ranks of the tcp transport.
//
// Connections:  each carries bytes in one direction only. A rank opens one to another rank when it
//               first sends something to it or waits for something from it: the end of a connection
//               shows that the process has ended.
// Lanes:        a pair of ranks on different nodes divides large messages among up to kMostLanes
//               connections in each direction. Only Data leaves on those other than the first.
// Begin:        a Hello, with the address key of the called rank, which that rank has published in
//               the store. Callers without it are disconnected. In a job with a secret, both ranks
//               prove that they have the worker key (job_key.h), which costs one round trip:
//
//                 caller: Hello with a nonce ->
//                 called rank:               <- Challenge: a nonce, and a proof over both nonces
//                 caller: a proof over both nonces, then frames ->
//
//               A proof is the HMAC of proven_text(). It covers both address keys, which identify
//               the group and its two ranks, so it is of no use for any other connection.
// Then frames:  a head of kHeadBytes and the payload. Numbers are little-endian.
//
//   Eager   slot, size; payload   a message of at most kEagerBytes
//   Ask     slot, size, number    announces a larger message, or one beyond the window
//   Grant   number                the answer to Ask when a receiver is waiting
//   Data    number, slot, size;   a part of a granted message, at most kPartBytes; the slot is its
//           payload               offset
//   Credit  size                  the receiver has freed this much of the window
//
// Window:       Eager messages without a receiver occupy memory of the receiving rank: at most
//               kWindowBytes per sender, including heads.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace drun::worker::tcp {

inline constexpr std::size_t kHelloBytes = 56;  // also of a Challenge
inline constexpr std::size_t kProofBytes = 32;
inline constexpr std::size_t kMostAddressBytes = 64;
inline constexpr std::size_t kHeadBytes = 32;
inline constexpr std::size_t kEagerBytes = std::size_t{512} << 10;
inline constexpr std::size_t kPartBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMostLanes = 4;
// Larger messages to another node are divided among all lanes.
inline constexpr std::size_t kLeastLaneBytes = 2 * kPartBytes;
inline constexpr std::size_t kWindowBytes = std::size_t{1} << 20;
// A receiver returns credit in pieces of at least this size.
inline constexpr std::size_t kCreditBytes = kWindowBytes / 4;
inline constexpr std::size_t kMostMessageBytes = std::size_t{1} << 48;
// Messages that one rank may announce before this one receives them.
inline constexpr std::size_t kMostAnnounced = std::size_t{1} << 20;

using HelloBytes = std::array<char, kHelloBytes>;
using Head = std::array<char, kHeadBytes>;
using Key = std::array<char, 16>;  // random; also a nonce
using Proof = std::array<char, kProofBytes>;

// The address of a rank, and the address key for connecting to it.
struct Place {
  std::string address{};  // numeric, at most kMostAddressBytes
  std::uint16_t port = 0;
  Key key{};
  bool has_job_key = false;  // so that connections to it begin with proofs
  bool operator==(const Place&) const = default;
};

// --- The messages, as they are sent

struct Hello {
  std::array<char, 8> magic = {'D', 'R', 'U', 'N', 'T', 'C', 'P', '5'};
  Key key{};               // of the called rank
  std::uint32_t rank = 0;  // the caller
  std::uint32_t size = 0;  // of the group
  std::uint32_t lane = 0;
  std::uint32_t unused = 0;
  Key nonce{};  // of the caller; zeros without proofs
  bool operator==(const Hello&) const = default;
};

struct Challenge {
  std::array<char, 8> magic = {'D', 'R', 'U', 'N', 'A', 'S', 'K', '5'};
  Key nonce{};
  Proof proof{};  // of the called rank
  bool operator==(const Challenge&) const = default;
};

// The head of a frame.
struct Frame {
  enum class Kind : std::uint8_t { Eager = 1, Ask, Grant, Data, Credit };
  Kind kind = Kind::Eager;
  std::array<char, 7> mark = {'F', 'R', 'A', 'M', 'E', '1', '\0'};
  std::uint64_t slot = 0;
  std::uint64_t number = 0;
  std::uint64_t size_bytes = 0;
  bool operator==(const Frame&) const = default;
};
static_assert(sizeof(Hello) == kHelloBytes && sizeof(Challenge) == kHelloBytes &&
              sizeof(Frame) == kHeadBytes && std::endian::native == std::endian::little);

// The window bytes used by an Eager message of that size.
inline std::size_t window_cost(std::size_t size_bytes) { return size_bytes + 2 * kHeadBytes; }

template <typename Message>
std::array<char, sizeof(Message)> encode(const Message& message) {
  return std::bit_cast<std::array<char, sizeof(Message)>>(message);
}

// Absent if it is not a Hello of this version. Requires kHelloBytes bytes.
std::optional<Hello> decode_hello(std::string_view bytes);
std::optional<Challenge> decode_challenge(std::string_view bytes);
// The text over which the ranks of a connection make their proofs. `callers_key`: the caller's
// address key, which the called rank has from the store and not from the connection.
enum class Prover : char { Caller = 'c', Called = 's' };
std::string proven_text(Prover prover, const Hello& hello, const Key& callers_key,
                        const Key& called_nonce);
// Absent if it is invalid in any state. Requires kHeadBytes bytes.
std::optional<Frame> decode_frame(std::string_view head);

}  // namespace drun::worker::tcp
