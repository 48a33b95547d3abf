#include "worker_lib/shm/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <string>

namespace drun::worker::shm {
namespace {

using Kind = WorkerError::Kind;

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

// The reason: a rank plus one, with this bit if its process has ended.
constexpr std::uint32_t kEndedBit = 0x80000000u;

BackendFailure loss_of(int rank) {
  return {Kind::PeerLost, rank, "lost rank " + std::to_string(rank) + ": its process ended", true};
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

// --- AbortFlag

void AbortFlag::tell_lost(int rank) noexcept {
  if (rank < 0 || rank >= segment_.size()) return;
  segment_.lost(rank).store(1);
  wake_all();
}

void AbortFlag::raise() noexcept {
  const int lost = found_;
  const auto reason = lost >= 0 ? kEndedBit | static_cast<std::uint32_t>(lost + 1)
                                : static_cast<std::uint32_t>(rank_ + 1);
  std::uint32_t quiet = 0;
  if (segment_.alarm().reason.compare_exchange_strong(quiet, reason)) wake_all();
}

void AbortFlag::wake_all() noexcept {
  segment_.alarm().changes.fetch_add(1);
  for (int rank = 0; rank < segment_.size(); ++rank) {
    ring(segment_.round_bell(rank));
    ring(segment_.message_bell(rank));
  }
}

std::vector<int> AbortFlag::lost_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < segment_.size(); ++rank)
    if (is_lost(rank)) ranks.push_back(rank);
  return ranks;
}

void AbortFlag::check_lost(const std::vector<int>& ranks) const {
  for (const int rank : ranks) {
    if (!is_lost(rank)) continue;
    int none = -1;
    found_.compare_exchange_strong(none, rank);
    throw loss_of(rank);
  }
}

void AbortFlag::check() const {
  const std::uint32_t reason = segment_.alarm().reason.load();
  if (reason == 0) return;
  const int rank = static_cast<int>(reason & ~kEndedBit) - 1;
  if (rank == rank_) {
    throw BackendFailure(Kind::Broken, "another operation of this rank has failed");
  }
  if ((reason & kEndedBit) != 0) throw loss_of(rank);
  throw BackendFailure(Kind::PeerLost, rank, "rank " + std::to_string(rank) + " left the group");
}

}  // namespace drun::worker::shm
