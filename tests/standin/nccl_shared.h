// edge. Memory that the processes of one stand-in communicator share: a channel from each rank to
// each, and which ranks have arrived or aborted.
//
// The file is removed once all ranks have arrived. Each end of a channel is used by one thread.
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
  Channel control[kMostRanks][kMostRanks];  // for data that is not on a stream
};

// Maps the file, and creates it if it does not exist. Returns null on failure.
Shared* map_shared(const std::string& path);
void unmap_shared(Shared* shared);

// One end of a transfer: bytes to or from a peer.
struct Part {
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};

// Transfers all parts concurrently, in order for each peer. Returns false if is_over became true
// first.
using Channels = Channel[kMostRanks][kMostRanks];
bool exchange(Channels& channels, int rank, std::vector<Part> out, std::vector<Part> in,
              const std::function<bool()>& is_over);

}  // namespace standin
