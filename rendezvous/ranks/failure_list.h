// core. The failures of one round, the earliest first, in bounded space.
//
// Order:   by moment, then by rank, so that the order of arrival does not matter. The first is the
//          root cause. There is one failure per rank: a later report of the same rank replaces the
//          text and keeps the earlier moment. Moments are times of one node's steady clock.
// Limits:  the first is always kept in full, the others while they together fit into
//          kFailuresBudgetBytes (control_wire.h). Beyond that, the latest ones are only counted.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "rendezvous/job/outcome.h"

namespace drun::rendezvous {

class FailureList {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void add(Failure failure, Time moment);
  void add_left_out(std::size_t count) { left_out_ += count; }

  bool empty() const { return entries_.empty(); }
  // The root cause so far. Requires !empty().
  const Failure& first() const { return entries_.front().failure; }
  std::size_t left_out() const { return left_out_; }

  struct Entry {
    Failure failure;
    Time moment;
    std::size_t size_bytes = 0;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Failure> failures() const;

 private:
  void shrink();

  std::vector<Entry> entries_;
  std::size_t total_bytes_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace drun::rendezvous
