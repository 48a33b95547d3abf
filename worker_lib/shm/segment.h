// core. The memory that the ranks of a group share, as its parts.
//
// Owner:   keeps the mapping alive; copies look at the same memory.   Thread: any.
#pragma once

#include <cassert>
#include <memory>
#include <utility>

#include "worker_lib/shm/layout.h"
#include "worker_lib/shm/mapping.h"

namespace drun::worker::shm {

class Segment {
 public:
  // Requires a mapping of Layout(size).size_bytes().
  Segment(std::shared_ptr<const Mapping> mapping, int size)
      : mapping_(std::move(mapping)), layout_(size), size_(size) {
    assert(mapping_->size_bytes() >= layout_.size_bytes());
  }

  int size() const { return size_; }
  AlarmWords& alarm() const { return at<AlarmWords>(Layout::alarm()); }
  Word& lost(int rank) const { return at<Word>(Layout::lost(rank)); }
  Bell& round_bell(int rank) const { return at<Bell>(layout_.round_bell(rank)); }
  Bell& message_bell(int rank) const { return at<Bell>(layout_.message_bell(rank)); }
  Home& home(int rank) const { return at<Home>(layout_.home(rank)); }
  Station& station(int rank, std::uint32_t round) const {
    return at<Station>(layout_.station(rank, round));
  }
  std::byte* payload(int rank, std::uint32_t round) const {
    return mapping_->data() + layout_.station(rank, round) + sizeof(Station);
  }
  RingEnds& ring_ends(int from, int to) const { return at<RingEnds>(layout_.ring(from, to)); }
  std::byte* ring_bytes(int from, int to) const {
    return mapping_->data() + layout_.ring(from, to) + sizeof(RingEnds);
  }

 private:
  template <typename T>
  T& at(std::size_t offset) const {
    return *reinterpret_cast<T*>(mapping_->data() + offset);
  }

  std::shared_ptr<const Mapping> mapping_;
  Layout layout_;
  int size_;
};

}  // namespace drun::worker::shm
