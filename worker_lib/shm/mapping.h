// edge. Memory that has no name in any file system: processes get it by its descriptor, and it is
// gone when the last of them is.
//
// Errors:  throws BackendFailure (System).
// Thread:  any.
#pragma once

#include <cstddef>

#include "rendezvous/unique_fd.h"

namespace drun::worker::shm {

// All zero. It can grow but never shrink, so that no access to what was mapped can fail.
UniqueFd create_memory(std::size_t size_bytes);
void grow_memory(int fd, std::size_t size_bytes);

// Owner:   a resource: unmapped when it goes.
class Mapping {
 public:
  // `size_bytes` from `offset` of fd, which may be closed then.
  Mapping(int fd, std::size_t offset, std::size_t size_bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace drun::worker::shm
