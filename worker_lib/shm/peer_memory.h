// edge. Other ranks' own memory, read where it is: one copy instead of two, through a system call
// (process_vm_readv).
//
// Allowed: by the kernel, to processes of one user, as for debuggers; not where ptrace is
// restricted
//          (Yama's ptrace_scope, as on Ubuntu) or left out of a container. Tried at the first read
//          of each rank: then it is this or nothing.
// Right:   each rank has a random number in its memory and says where. It is read behind the data
//          each time: so that was the process that is meant, and not one that has its pid by now or
//          in another pid namespace.
// Owner:   a backend; what it says of itself must be readable until then.
// Thread:  one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

 private:
  Segment segment_;
  const std::unique_ptr<const std::uint64_t> token_;
  std::vector<bool> is_closed_;  // by rank
};

}  // namespace drun::worker::shm
