// edge. What tests need to know of the machine and the build: time limits that suit the build, and
// TCP ports that no other test process uses.
#pragma once

#include <chrono>
#include <cstdint>

namespace drun::test {

// How many times as long an operation may take in this build as in an ordinary one.
// tests/CMakeLists.txt scales CTest's own limits alike.
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

// An upper bound on wall-clock time: `limit` in an ordinary build, more under a sanitizer. Every
// upper bound and every deadline of a test passes through here. Lower bounds do not.
template <typename Rep, typename Period>
constexpr std::chrono::duration<Rep, Period> scaled(std::chrono::duration<Rep, Period> limit) {
  return limit * kSlowdown;
}

// Consecutive ports, all below the ephemeral range: the kernel gives none of them to an outgoing
// connection or to a server that binds port 0. A block belongs to one process, and to the children
// that it forks, until the last of them exits; other network namespaces have blocks of their own.
struct PortBlock {
  static constexpr int kSize = 40;
  std::uint16_t first = 0;
};

// Throws std::runtime_error when all blocks are taken.
PortBlock take_port_block();

// A port of this process's own block on which nothing listens, at any address. It differs from the
// previous ones as long as the process holds fewer than a few hundred.
std::uint16_t free_port();

}  // namespace drun::test
