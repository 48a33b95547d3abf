#include "tests/standin/nccl_shared.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace standin {
namespace {

// Writes as much as fits or is left. Returns whether anything moved.
bool write_some(Channel& channel, Part& part) {
  const std::uint64_t written = channel.written.load(std::memory_order_relaxed);
  const std::uint64_t used = written - channel.read.load(std::memory_order_acquire);
  const std::size_t at = written % kChannelBytes;
  const std::size_t count =
      std::min({part.bytes, kChannelBytes - static_cast<std::size_t>(used), kChannelBytes - at});
  std::copy_n(part.data, count, channel.bytes + at);
  channel.written.store(written + count, std::memory_order_release);
  part.data += count;
  part.bytes -= count;
  return count > 0;
}

bool read_some(Channel& channel, Part& part) {
  const std::uint64_t read = channel.read.load(std::memory_order_relaxed);
  const std::uint64_t there = channel.written.load(std::memory_order_acquire) - read;
  const std::size_t at = read % kChannelBytes;
  const std::size_t count =
      std::min({part.bytes, static_cast<std::size_t>(there), kChannelBytes - at});
  std::copy_n(channel.bytes + at, count, part.data);
  channel.read.store(read + count, std::memory_order_release);
  part.data += count;
  part.bytes -= count;
  return count > 0;
}

// Advances the first unfinished part for each peer, and removes the finished parts.
template <typename Move>
bool advance(std::vector<Part>& parts, Move&& move) {
  bool has_moved = false;
  bool is_taken[kMostRanks] = {};
  for (Part& part : parts) {
    if (is_taken[part.peer]) continue;
    is_taken[part.peer] = true;
    has_moved = move(part) || has_moved;
  }
  const auto is_done = [](const Part& part) { return part.bytes == 0; };
  parts.erase(std::remove_if(parts.begin(), parts.end(), is_done), parts.end());
  return has_moved;
}

}  // namespace

Shared* map_shared(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (ftruncate(fd, sizeof(Shared)) == 0) {
    memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);  // all zeros is a valid
                                                                         // initial state
}

void unmap_shared(Shared* shared) { munmap(shared, sizeof(Shared)); }

bool exchange(Channels& channels, int rank, std::vector<Part> out, std::vector<Part> in,
              const std::function<bool()>& is_over) {
  while (!out.empty() || !in.empty()) {
    const bool has_sent =
        advance(out, [&](Part& part) { return write_some(channels[rank][part.peer], part); });
    const bool has_received =
        advance(in, [&](Part& part) { return read_some(channels[part.peer][rank], part); });
    if (has_sent || has_received) continue;
    if (is_over()) return false;
    sched_yield();
  }
  return true;
}

}  // namespace standin
