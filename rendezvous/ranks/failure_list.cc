#include "rendezvous/ranks/failure_list.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {

void FailureList::add(Failure failure, Time moment) {
  const auto same_rank = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.failure.rank == failure.rank;
  });
  if (same_rank != entries_.end()) {
    moment = std::min(moment, same_rank->moment);
    total_bytes_ -= same_rank->size_bytes;
    entries_.erase(same_rank);
  }
  const std::size_t size_bytes = wire_size_bytes(failure);
  Entry entry{std::move(failure), moment, size_bytes};
  const auto later = std::upper_bound(
      entries_.begin(), entries_.end(), entry, [](const Entry& one, const Entry& other) {
        return std::tie(one.moment, one.failure.rank) < std::tie(other.moment, other.failure.rank);
      });
  entries_.insert(later, std::move(entry));
  total_bytes_ += size_bytes;
  shrink();
}

void FailureList::shrink() {
  while (entries_.size() > 1 && total_bytes_ - entries_.front().size_bytes > kFailuresBudgetBytes) {
    total_bytes_ -= entries_.back().size_bytes;
    entries_.pop_back();
    ++left_out_;
  }
}

std::vector<Failure> FailureList::failures() const {
  std::vector<Failure> failures;
  failures.reserve(entries_.size());
  for (const Entry& entry : entries_) failures.push_back(entry.failure);
  return failures;
}

}  // namespace drun::rendezvous
