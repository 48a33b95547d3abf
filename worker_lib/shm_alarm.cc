#include "worker_lib/shm_alarm.h"

#include <string>

#include "drun/backend.h"
#include "worker_lib/shm_wait.h"

namespace drun::worker::shm {
namespace {

using Kind = WorkerError::Kind;

// The word: a rank plus one, with this bit if its process ended.
constexpr std::uint32_t kLost = 0x80000000u;

}  // namespace

void Alarm::raise_lost(int rank) noexcept { raise(kLost | static_cast<std::uint32_t>(rank + 1)); }
void Alarm::raise_given_up() noexcept { raise(static_cast<std::uint32_t>(rank_ + 1)); }

void Alarm::raise(std::uint32_t reason) noexcept {
  std::uint32_t quiet = 0;
  segment_.alarm().compare_exchange_strong(quiet, reason);
  for (int rank = 0; rank < segment_.size(); ++rank) {
    ring(segment_.round_bell(rank));
    ring(segment_.message_bell(rank));
  }
}

void Alarm::check() const {
  const std::uint32_t reason = segment_.alarm().load();
  if (reason == 0) return;
  const int rank = static_cast<int>(reason & ~kLost) - 1;
  const std::string name = "rank " + std::to_string(rank);
  if (rank == rank_) {
    throw BackendFailure(Kind::Broken, std::nullopt, "another operation of this rank has failed");
  }
  if ((reason & kLost) != 0) throw BackendFailure(Kind::PeerLost, rank, "lost " + name);
  throw BackendFailure(Kind::PeerLost, rank, name + " has left the group");
}

}  // namespace drun::worker::shm
