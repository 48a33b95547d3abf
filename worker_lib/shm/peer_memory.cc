#include "worker_lib/shm/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/base/random_instance.h"

namespace drun::worker::shm {
namespace {

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

PeerMemory::PeerMemory(const Segment& segment, int rank, bool may_read)
    : segment_(segment),
      rank_(rank),
      may_read_(may_read),
      // Never 0, which means none.
      token_(std::make_unique<const std::uint64_t>(rendezvous::random_instance() | 1)),
      is_closed_(static_cast<std::size_t>(segment.size())) {
  Home& home = segment_.home(rank);
  home.pid.store(static_cast<std::uint32_t>(getpid()));
  home.address.store(reinterpret_cast<std::uintptr_t>(token_.get()));
  home.token.store(*token_);
}

bool PeerMemory::read(int rank, std::uint64_t address, std::byte* to, std::size_t bytes) {
  const auto at = static_cast<std::size_t>(rank);
  if (!may_read_ || is_closed_[at]) return false;
  const Home& home = segment_.home(rank);
  const std::uint64_t token = home.token.load();
  if (token == 0) return false;  // not published yet
  std::uint64_t seen = 0;
  iovec mine[] = {{.iov_base = to, .iov_len = bytes}, {.iov_base = &seen, .iov_len = sizeof seen}};
  iovec theirs[] = {{.iov_base = pointer(address), .iov_len = bytes},
                    {.iov_base = pointer(home.address.load()), .iov_len = sizeof seen}};
  const auto pid = static_cast<pid_t>(home.pid.load());
  const ssize_t count = process_vm_readv(pid, mine, 2, theirs, 2, 0);
  if (count == static_cast<ssize_t>(bytes + sizeof seen) && seen == token) return true;
  is_closed_[at] = true;
  return false;
}

bool PeerMemory::seems_open() const {
  if (!may_read_) return false;
  for (int rank = 0; rank < segment_.size(); ++rank) {
    if (rank == rank_) continue;
    if (is_closed_[static_cast<std::size_t>(rank)] || segment_.home(rank).token.load() == 0) {
      return false;
    }
  }
  return true;
}

bool PeerBuffers::are_there() const {
  std::byte byte{};
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    if (!read(rank, 0, &byte, 1) || !read(rank, size_bytes_ - 1, &byte, 1)) return false;
  }
  return true;
}

}  // namespace drun::worker::shm
