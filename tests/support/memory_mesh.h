// Ranks as threads of one process whose messages are memory copies, for algorithms over an
// Exchange.
//
// A message is copied when one of its two ends waits for it, as late as the contract allows. Code
// that changes a buffer during a send, or reads one before its receive completes, therefore gets
// wrong numbers. A wait longer than kLimit throws a Timeout.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/algorithms/exchange.h"

namespace drun::test {

class MemoryMesh {
 public:
  static constexpr std::chrono::seconds kLimit{10};

  explicit MemoryMesh(int size) : size_(size) {}
  int size() const { return size_; }

  // `context` separates exchanges, as a sequence number does.
  std::unique_ptr<worker::Exchange> exchange(int rank, std::uint64_t context = 0);
  // The number of sent messages.
  std::size_t sent_count() const;

 private:
  friend class MemoryExchange;
  struct Message {
    const void* source = nullptr;
    void* target = nullptr;
    bool is_done = false;
  };
  using Key = std::tuple<std::uint64_t, int, int, std::size_t>;  // context, from, to, size
  struct Line {                                                  // messages of one key, in order
    std::map<std::size_t, Message> messages;
    std::size_t sends = 0;
    std::size_t recvs = 0;
  };

  const int size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Line> lines_;
  std::size_t sent_count_ = 0;
};

// Runs `body` on one thread per rank. Throws the first exception of any thread.
void run_threads(int size, const std::function<void(int rank)>& body);

// A backend over a MemoryMesh, for collectives only.
std::unique_ptr<Backend> make_memory_backend(std::shared_ptr<MemoryMesh> mesh, int rank);

}  // namespace drun::test
