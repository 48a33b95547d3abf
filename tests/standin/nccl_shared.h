// edge. What the processes of one communicator of the stand-in share: a file in memory with a
// channel from each rank to each, and who has come, left or given up.
//
// Owner:   a communicator; the file is removed when all have come.
// Thread:  a channel's ends one thread each; the rest any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace standin {

constexpr int kMostRanks = 8;
constexpr std::size_t kChannelBytes = 16384;

struct Channel {
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> read{0};
  char bytes[kChannelBytes];
};

struct Shared {
  std::atomic<int> came{0};
  std::atomic<bool> has_aborted[kMostRanks]{};
  Channel data[kMostRanks][kMostRanks];     // from, to
  Channel control[kMostRanks][kMostRanks];  // of what is not on a stream
};

// Maps the file, which is made if it is not there. Null: that cannot be.
Shared* map_shared(const std::string& path);
void unmap_shared(Shared* shared);

// One side of a transfer: bytes to or from a peer.
struct Part {
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};

// All at once, in order for each peer. False: is_over said so before it was done.
using Channels = Channel[kMostRanks][kMostRanks];
bool exchange(Channels& channels, int rank, std::vector<Part> out, std::vector<Part> in,
              const std::function<bool()>& is_over);

}  // namespace standin
