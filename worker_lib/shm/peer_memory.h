// edge. Reads other ranks' private memory with process_vm_readv(2): one copy instead of two.
//
// Allowed: as for debuggers, by the kernel between processes of one user. Not where ptrace is
//          restricted (Yama's ptrace_scope, as on Ubuntu) or disabled in a container. The first
//          read from each rank determines whether it is used.
// Safety:  each rank has a random number (token) in its memory and publishes its address. Every
//          read also reads the token after the data. If it matches, the data came from the right
//          process, not from one that has the same pid now or in another pid namespace.
// Owner:   a backend. The token must stay readable until the backend is destroyed.
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
  // Publishes this rank's token. `may_read` false: never reads other ranks' memory.
  PeerMemory(const Segment& segment, int rank, bool may_read);

  // Copies `bytes` from `address` in that rank's memory. False if that is not possible; `to` may
  // then be partly written.
  bool read(int rank, std::uint64_t address, std::byte* to, std::size_t bytes);
  // False if reads are off, a read from any other rank has failed, or a rank has not published its
  // token.
  bool seems_open() const;

 private:
  Segment segment_;
  const int rank_;
  const bool may_read_;
  const std::unique_ptr<const std::uint64_t> token_;
  std::vector<std::atomic<bool>> is_closed_;  // by rank
};

// One buffer per rank, all of the same size. For one call.
class PeerBuffers {
 public:
  PeerBuffers(PeerMemory& memory, int rank, std::vector<std::uint64_t> addresses,
              std::size_t size_bytes)
      : memory_(memory), rank_(rank), addresses_(std::move(addresses)), size_bytes_(size_bytes) {}

  // As PeerMemory::read.
  bool read(std::size_t rank, std::size_t begin, std::byte* to, std::size_t bytes) const {
    return memory_.read(static_cast<int>(rank), addresses_[rank] + begin, to, bytes);
  }
  // Whether the first and last bytes of every buffer can be read.
  bool are_there() const;

 private:
  PeerMemory& memory_;
  const int rank_;
  const std::vector<std::uint64_t> addresses_;  // by rank
  const std::size_t size_bytes_;
};

}  // namespace drun::worker::shm
