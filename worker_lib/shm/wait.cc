#include "worker_lib/shm/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>

namespace drun::worker::shm {
namespace {

// About 2 us, the time that other ranks need for a short operation. If another program uses one of
// two cores, two ranks share the other, and polling delays the awaited rank: with 400 polls, every
// operation took three times as long (measured).
constexpr int kLooks = 30;

// steady_clock is CLOCK_MONOTONIC, which the futex uses.
timespec to_timespec(Deadline deadline) {
  const auto since = deadline.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds.count());
  time.tv_nsec = static_cast<long>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count());
  return time;
}

// Not FUTEX_PRIVATE: the sleeper may be another process.
void wake_all(Word& word) noexcept {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
          0);
}

}  // namespace

void wake_sleepers(WakeFlag& bell) noexcept {
  if (bell.sleepers.fetch_add(0) != 0) ring(bell);
}

void ring(WakeFlag& bell) noexcept {
  bell.rings.fetch_add(1);
  if (bell.sleepers.load() != 0) wake_all(bell.rings);
}

SpinPolicy spin_policy_for(int ranks, const CoreMask& cores) {
  SpinPolicy spin;
  if (ranks <= usable_cores(cores)) spin.looks = kLooks;
  return spin;
}

bool detail::Sleeper::sleep(std::uint32_t rings, Deadline deadline) const {
  const timespec until = to_timespec(deadline);
  if (until.tv_sec < 0 || until.tv_nsec < 0) return false;
  const long result = syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&bell_.rings),
                              FUTEX_WAIT_BITSET, rings, &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return result == 0 || errno != ETIMEDOUT;
}

}  // namespace drun::worker::shm
