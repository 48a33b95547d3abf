#include "worker_lib/shm_rounds.h"

#include <string>
#include <vector>

namespace drun::worker::shm {

void Rounds::meet(Deadline deadline) {
  my_station().stamp.store(round_ + 1);
  wake_sleepers(segment_.round_bell(rank_));
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_come(rank)) await(rank, deadline);
  }
  ++round_;
}

void Rounds::await(int rank, Deadline deadline) const {
  const bool is_in_time = wait_at(segment_.round_bell(rank), patience_, deadline,
                                  [&] { return has_come(rank) || alarm_.is_raised(); });
  // Who raised the alarm may have done so after coming here.
  if (has_come(rank)) return;
  alarm_.check();
  if (!is_in_time) throw_timeout();
}

void Rounds::throw_timeout() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_come(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return;  // all of them have, at the last moment
  std::optional<int> peer;
  if (missing.size() == 1) peer = missing.front();
  throw BackendFailure(WorkerError::Kind::Timeout, peer,
                       describe_ranks(missing) + " did not come in time");
}

}  // namespace drun::worker::shm
