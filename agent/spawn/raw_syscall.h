// edge. System calls whose error is their result, for code that runs between clone and exec.
//
// A child of clone(CLONE_VM) shares its parent's memory, and therefore its errno and every other
// thread-local variable, while the parent continues. The C library's wrappers write there when a
// call fails, and may bind themselves lazily; these do neither.
//
// Result:  as the kernel returns it; -errno on failure.
// Thread:  any. Async-signal-safe.
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

// Names that older headers lack.
#ifndef SYS_pidfd_open  // Linux 5.3
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range  // Linux 5.9
#define SYS_close_range 436
#endif
#ifndef SYS_faccessat2  // Linux 5.8
#define SYS_faccessat2 439
#endif

namespace drun::agent {

inline constexpr idtype_t kPidfd = static_cast<idtype_t>(3);  // waitid's P_PIDFD, Linux 5.4

#if defined(__x86_64__) || defined(__aarch64__)
inline constexpr bool kHasRawSyscalls = true;
#else
inline constexpr bool kHasRawSyscalls = false;  // errno is written: not for shared memory
#endif

inline long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
#if defined(__x86_64__)
  long result;
  register long r10 asm("r10") = d;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  register long x3 asm("x3") = d;
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#else
  const long result = ::syscall(number, a, b, c, d);
  return result < 0 ? -errno : result;
#endif
}

inline long raw_argument(const void* pointer) { return reinterpret_cast<long>(pointer); }

// The record of getdents64(2).
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t size;
  std::uint8_t type;
  char name[1];
};

// Calls `visit` with the names in the directory, from its current position on, until it returns
// false or no name is left. The names include "." and "..". `buffer`: at least 1 KiB, aligned as a
// DirectoryEntry. An error ends the names.
template <typename Visit>
void for_each_name(int directory, std::span<char> buffer, const Visit& visit) {
  while (true) {
    const long size = syscall(SYS_getdents64, directory, buffer.data(), buffer.size());
    if (size <= 0) return;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      const char* const record = buffer.data() + at;
      at += reinterpret_cast<const DirectoryEntry*>(record)->size;
      if (!visit(record + offsetof(DirectoryEntry, name))) return;
    }
  }
}

}  // namespace drun::agent
