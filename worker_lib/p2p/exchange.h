// core. What the algorithms of collectives stand on: memory that goes from rank to rank within one
// collective of one rank.
//
// Order:   between two ranks, the messages of one size arrive in the order they were sent in. Both
//          sides give the same size; messages whose sizes differ never meet.
// Memory:  stays where it is until wait() has returned or any of these has thrown: then nothing
//          moves any more.
// Thread:  one at a time.
// Errors:  throws BackendFailure.
#pragma once

#include <cstddef>
#include <limits>

namespace drun::worker {

class Exchange {
 public:
  using Handle = std::size_t;

  Exchange(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Rank `distance` further on, around the end; also a negative distance.
  int rank_after(int rank, int distance) const {
    return ((rank + distance) % size_ + size_) % size_;
  }

  // Both return at once. Nothing, of 0 bytes, is not sent.
  Handle send(int to, const void* data, std::size_t size_bytes) {
    return size_bytes == 0 ? kNothing : start_send(to, data, size_bytes);
  }
  Handle recv(int from, void* data, std::size_t size_bytes) {
    return size_bytes == 0 ? kNothing : start_recv(from, data, size_bytes);
  }
  // Once for each handle.
  void wait(Handle handle) {
    if (handle != kNothing) finish(handle);
  }

  static constexpr Handle kNothing = std::numeric_limits<Handle>::max();

 private:
  virtual Handle start_send(int to, const void* data, std::size_t size_bytes) = 0;
  virtual Handle start_recv(int from, void* data, std::size_t size_bytes) = 0;
  virtual void finish(Handle handle) = 0;

  const int rank_;
  const int size_;
};

}  // namespace drun::worker
