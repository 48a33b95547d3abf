// edge. Regions: memory for buffers that all ranks can access. All ranks create a region together,
// and each has a part of the size that it requested.
//
// All regions are pieces of one unnamed file that only grows. Offsets in it are never reused, and
// dropping a part frees its pages at once.
// Owner:   a region stays mapped in this process until its rank's part is dropped, or this object
//          is destroyed.
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

// The place of a rank's buffer in the regions, which it publishes.
struct Place {
  std::uint32_t region = 0;  // from 1
  std::uint64_t offset = 0;  // within the rank's part
};

class Regions {
 public:
  Regions(UniqueFd memory, int rank);

  // Create the next region: first grow() on one rank, then map() on all ranks, with the same sizes.
  void grow(const std::vector<std::uint64_t>& part_bytes);
  std::shared_ptr<void> map(const std::vector<std::uint64_t>& part_bytes);

  // The place of a buffer; absent if it is not in this rank's own part of a region.
  std::optional<Place> find(const void* data, std::size_t size_bytes);
  // Another rank's buffer; null if this rank has no such region, or the region ends before it.
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
