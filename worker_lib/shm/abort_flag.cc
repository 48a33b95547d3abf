#include "worker_lib/shm/abort_flag.h"

#include <string>

#include "worker_lib/shm/wait.h"

namespace drun::worker::shm {
namespace {

using Kind = WorkerError::Kind;

// The reason: a rank plus one, with this bit if its process has ended.
constexpr std::uint32_t kLost = 0x80000000u;

BackendFailure loss_of(int rank) {
  return {Kind::PeerLost, rank, "lost rank " + std::to_string(rank) + ": its process ended", true};
}

}  // namespace

void AbortFlag::tell_lost(int rank) noexcept {
  if (rank < 0 || rank >= segment_.size()) return;
  segment_.lost(rank).store(1);
  wake_all();
}

void AbortFlag::raise() noexcept {
  const int lost = found_;
  const auto reason = lost >= 0 ? kLost | static_cast<std::uint32_t>(lost + 1)
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
  const int rank = static_cast<int>(reason & ~kLost) - 1;
  if (rank == rank_) {
    throw BackendFailure(Kind::Broken, std::nullopt, "another operation of this rank has failed");
  }
  if ((reason & kLost) != 0) throw loss_of(rank);
  throw BackendFailure(Kind::PeerLost, rank, "rank " + std::to_string(rank) + " left the group");
}

}  // namespace drun::worker::shm
