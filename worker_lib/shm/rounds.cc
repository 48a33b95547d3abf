#include "worker_lib/shm/rounds.h"

#include <string>

namespace drun::worker::shm {
namespace {

// 1 KiB and the stamp: as many cache lines as a core can request at once.
constexpr std::size_t kClaimedLines = 17;

}  // namespace

void Rounds::meet(Deadline deadline) {
  my_station().stamp.store(round_ + 1, std::memory_order_release);
  int rank = 0;
  while (rank < size() && has_come(rank)) ++rank;
  // Wake before checking the other stations: a check would wait until the stamp has left this core.
  wake_sleepers(segment_.round_bell(rank_));
  for (; rank < size(); ++rank) {
    if (!has_come(rank)) await(rank, deadline);
  }
  ++round_;
  // All ranks have read this station: prefetch its lines while the caller uses the data.
  auto* const coming = reinterpret_cast<std::byte*>(&my_station());
  for (std::size_t line = 0; line < kClaimedLines; ++line) {
    detail::claim_line(coming + line * kLineBytes);
  }
}

void Rounds::await(int rank, Deadline deadline) const {
  while (true) {
    const std::uint32_t changes = abort_flag_.changes();
    const bool is_raised = abort_flag_.is_raised();
    std::vector<int> lost = changes != 0 ? abort_flag_.lost_ranks() : std::vector<int>{};
    // Checked last, because a rank that has failed or ended may have reached this round before.
    if (has_come(rank)) return;
    if (is_raised) abort_flag_.check();
    std::erase_if(lost, [this](int each) { return has_come(each); });
    abort_flag_.check_lost(lost);
    const bool is_in_time = wait_at(segment_.round_bell(rank), spin_, deadline, [&] {
      return has_come(rank) || abort_flag_.changes() != changes;
    });
    if (has_come(rank)) return;
    if (!is_in_time) return throw_timeout();
  }
}

std::vector<int> Rounds::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_come(rank)) ranks.push_back(rank);
  }
  return ranks;
}

void Rounds::throw_timeout() const {
  const std::vector<int> ranks = missing();
  if (ranks.empty()) return;  // all have arrived at the last moment
  std::optional<int> peer;
  if (ranks.size() == 1) peer = ranks.front();
  throw BackendFailure(WorkerError::Kind::Timeout, peer,
                       describe_ranks(ranks) + " did not come in time");
}

}  // namespace drun::worker::shm
