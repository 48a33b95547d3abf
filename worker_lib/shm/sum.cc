#include "worker_lib/shm/sum.h"

#include <algorithm>
#include <cstring>

namespace drun::worker::shm {

namespace {

// Up to here a sum is short. Measured: the work that is done several times over costs less than a
// second meeting.
std::size_t short_bytes(int ranks) { return 64 * 1024 / static_cast<std::size_t>(ranks); }

}  // namespace

Sum::Sum(Rounds& rounds, const Call& call, Deadline deadline)
    : rounds_(rounds),
      own_(static_cast<std::size_t>(rounds.rank())),
      ranks_(static_cast<std::size_t>(rounds.size())),
      element_bytes_(size_bytes(call.type)),
      count_(call.count),
      turn_count_(kPayloadBytes / element_bytes_),
      is_short_(count_ * element_bytes_ <= short_bytes(rounds.size())),
      is_for_all_(call.operation == Operation::AllReduce),
      deadline_(deadline),
      reduction_(call, rounds.size()),
      input_(static_cast<const std::byte*>(call.input)),
      output_(is_for_all_ || call.root == rounds.rank() ? static_cast<std::byte*>(call.output)
                                                        : nullptr),
      sources_(ranks_) {}

std::size_t Sum::turns() const { return (count_ + turn_count_ - 1) / turn_count_; }

Sum::Span Sum::turn_span(std::size_t turn) const {
  const std::size_t begin = turn * turn_count_;
  return {.begin = begin, .count = std::min(turn_count_, count_ - begin)};
}

// In whole cache lines, which no two ranks write to then.
Sum::Span Sum::share_of(std::size_t rank, std::size_t count) const {
  const std::size_t line = kLineBytes / element_bytes_;
  const std::size_t most = (count / ranks_ / line + 1) * line;
  const std::size_t begin = std::min(count, rank * most);
  return {.begin = begin, .count = std::min(most, count - begin)};
}

void Sum::put(std::size_t turn) {
  const Span now = turn_span(turn);
  const std::byte* from = input_ + now.begin * element_bytes_;
  // Its own share a rank reads where it is.
  const Span own = is_short_ ? Span{} : share_of(own_, now.count);
  const std::size_t own_end = own.begin + own.count;
  std::memcpy(rounds_.mine(), from, own.begin * element_bytes_);
  std::memcpy(rounds_.mine() + own_end * element_bytes_, from + own_end * element_bytes_,
              (now.count - own_end) * element_bytes_);
}

void Sum::take(std::size_t turn) {
  const Span now = turn_span(turn);
  if (is_short_) return reduce_whole(now);
  reduce_share(now);
  rounds_.meet(deadline_);
  collect_shares(now);
}

void Sum::reduce_whole(const Span& now) {
  if (output_ == nullptr) return;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = rounds_.of(static_cast<int>(rank));
  }
  reduction_(output_ + now.begin * element_bytes_, sources_, now.count);
}

void Sum::reduce_share(const Span& now) {
  const Span share = share_of(own_, now.count);
  const std::size_t in_station = share.begin * element_bytes_;
  const std::size_t in_whole = now.begin * element_bytes_ + in_station;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = rounds_.of(static_cast<int>(rank)) + in_station;
  }
  sources_[own_] = input_ + in_whole;
  if (output_ == nullptr) return reduction_(rounds_.mine() + in_station, sources_, share.count);
  std::vector<std::byte*> others;
  if (is_for_all_) others.push_back(rounds_.mine() + in_station);
  reduction_(output_ + in_whole, sources_, share.count, others);
}

void Sum::collect_shares(const Span& now) {
  if (output_ == nullptr) return;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (rank == own_) continue;
    const Span share = share_of(rank, now.count);
    std::memcpy(output_ + (now.begin + share.begin) * element_bytes_,
                rounds_.of(static_cast<int>(rank)) + share.begin * element_bytes_,
                share.count * element_bytes_);
  }
}

void Sum::take_directly(const std::vector<std::byte*>& buffers) {
  if (output_ == nullptr) return;
  const Span share = is_for_all_ ? share_of(own_, count_) : Span{.begin = 0, .count = count_};
  const std::size_t begin = share.begin * element_bytes_;
  std::vector<std::byte*> others;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = buffers[rank] + begin;
    if (is_for_all_ && rank != own_) others.push_back(buffers[rank] + begin);
  }
  reduction_(output_ + begin, sources_, share.count, others);
}

}  // namespace drun::worker::shm
