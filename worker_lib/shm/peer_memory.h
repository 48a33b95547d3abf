// edge. Other ranks' own memory, read where it is: one copy instead of two, through a system call
// (process_vm_readv).
//
// Allowed: by the kernel, to processes of one user, as for debuggers; not where ptrace is
//          restricted (Yama's ptrace_scope, as on Ubuntu) or left out of a container. Tried at the
//          first read of each rank: then it is this or nothing.
// Right:   each rank has a random number in its memory and says where. It is read behind the data
//          each time: so that was the process that is meant, and not one that has its pid by now or
//          in another pid namespace.
// Owner:   a backend; what it says of itself must be readable until then.
// Thread:  any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {

class PeerMemory {
 public:
  // Says where this rank's is. `may_read`: false leaves others' alone.
  PeerMemory(const Segment& segment, int rank, bool may_read);

  // Copies `bytes` from `address` in that rank's memory. False: it is not to be had; `to` may be
  // written to.
  bool read(int rank, std::uint64_t address, std::byte* to, std::size_t bytes);
  // Whether a read from each of the others is worth a try.
  bool seems_open() const;

 private:
  Segment segment_;
  const int rank_;
  const bool may_read_;
  const std::unique_ptr<const std::uint64_t> token_;
  std::vector<std::atomic<bool>> is_closed_;  // by rank
};

// One buffer of each rank's, all of the same size.   Owner: for one call.
class PeerBuffers {
 public:
  PeerBuffers(PeerMemory& memory, int rank, std::vector<std::uint64_t> addresses,
              std::size_t size_bytes)
      : memory_(memory), rank_(rank), addresses_(std::move(addresses)), size_bytes_(size_bytes) {}

  // As PeerMemory's.
  bool read(std::size_t rank, std::size_t begin, std::byte* to, std::size_t bytes) const {
    return memory_.read(static_cast<int>(rank), addresses_[rank] + begin, to, bytes);
  }
  // Both ends of each can be read.
  bool are_there() const;

 private:
  PeerMemory& memory_;
  const int rank_;
  const std::vector<std::uint64_t> addresses_;  // by rank
  const std::size_t size_bytes_;
};

}  // namespace drun::worker::shm
