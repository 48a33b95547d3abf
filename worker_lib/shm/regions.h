// edge. Memory for buffers that all ranks reach: a region is made by all of them together and has a
// part for each rank, of whatever size it asked for.
//
// All regions are pieces of one nameless file that only grows; places in it are never used twice,
// and what a rank drops gives its pages back at once.
// Owner:   a region is mapped here until its rank has dropped it, or this object and it are gone.
// Thread:  any.   Errors: throws BackendFailure (System).
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

// Where in the regions a rank's buffer lies: what it tells the others.
struct Place {
  std::uint32_t region = 0;  // from 1
  std::uint64_t offset = 0;  // in the rank's part
};

class Regions {
 public:
  Regions(UniqueFd memory, int rank);

  // The next region. grow() first, on one rank; then map() on all of them, with the same sizes.
  void grow(const std::vector<std::uint64_t>& part_bytes);
  std::shared_ptr<void> map(const std::vector<std::uint64_t>& part_bytes);

  // Of a buffer in this rank's own part of a region.
  std::optional<Place> find(const void* data, std::size_t size_bytes);
  // Another rank's buffer; nothing: this rank has no such region, or it ends before that.
  std::byte* at(int rank, const Place& place, std::size_t size_bytes);

 private:
  struct Region;

  std::shared_ptr<const UniqueFd> memory_;
  const int rank_;
  std::mutex mutex_;
  std::list<std::weak_ptr<Region>> regions_;
  std::uint32_t next_region_ = 1;
  std::uint64_t end_bytes_ = 0;
};

}  // namespace drun::worker::shm
