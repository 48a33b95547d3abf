// edge. Time limits that fit the build, and TCP ports that no other test process uses.
#pragma once

#include <chrono>
#include <cstdint>

namespace drun::test {

// How many times as long an operation may take as in an ordinary build. tests/CMakeLists.txt scales
// CTest's limits equally.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kHasThreadSanitizer = true;
inline constexpr int kSlowdown = 5;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasThreadSanitizer = false;
inline constexpr int kSlowdown = 3;
#elif defined(__has_feature)  // clang
inline constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
inline constexpr int kSlowdown = kHasThreadSanitizer ? 5 : __has_feature(address_sanitizer) ? 3 : 1;
#else
inline constexpr bool kHasThreadSanitizer = false;
inline constexpr int kSlowdown = 1;
#endif

// An upper limit of wall-clock time: `limit` in an ordinary build, more under a sanitizer. Use it
// for every upper limit and deadline of a test, but not for lower limits.
template <typename Rep, typename Period>
constexpr std::chrono::duration<Rep, Period> scaled(std::chrono::duration<Rep, Period> limit) {
  return limit * kSlowdown;
}

// Consecutive ports below the ephemeral range, so the kernel assigns none of them to an outgoing
// connection or to a server that binds port 0. A block belongs to one process and the children that
// it forks, until the last of them exits. Other network namespaces have separate blocks.
struct PortBlock {
  static constexpr int kSize = 40;
  std::uint16_t first = 0;
};

// Throws std::runtime_error if all blocks are in use.
PortBlock take_port_block();

// Returns a port from this process's blocks on which nothing listens, at any address. It differs
// from the previous ones as long as the process holds fewer than a few hundred.
std::uint16_t free_port();

}  // namespace drun::test
