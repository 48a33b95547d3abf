// edge. Random numbers for names and identities, such as one start of an agent. From the kernel:
// std::random_device executes CPUID, which costs tens of microseconds in a virtual machine.
#pragma once

#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

namespace drun::rendezvous {

// Without getrandom (an old sandbox), the time and the pid: unique enough for a name, not secret.
inline std::uint64_t random_instance() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) == static_cast<ssize_t>(sizeof number)) return number;
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return static_cast<std::uint64_t>(now) ^ static_cast<std::uint64_t>(::getpid()) << 32;
}

}  // namespace drun::rendezvous
