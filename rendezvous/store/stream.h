// edge. A blocking TCP connection on which everything has a deadline.
//
// Owner:   the caller; movable, closes its socket when destroyed.
// Thread:  any, one at a time.
// Units:   deadlines are steady-clock points.
// Errors:  Timeout, Closed (end of stream, reset), Unreachable (open), System; messages give the
//          reason alone, the caller says what it was doing. After an error the stream may have read
//          or written a part: close it, unless it was a Timeout of `read` with nothing read.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/endpoint.h"
#include "rendezvous/result.h"
#include "rendezvous/unique_fd.h"

namespace drun {

class StoreStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Tries each address of the name once, in the system's order; the error is the last one's.
  static Result<StoreStream> open(const Endpoint& endpoint, Time deadline);

  Result<void> write(std::string_view bytes, Time deadline);
  // Exactly `size_bytes` of them.
  Result<void> read(char* to, std::size_t size_bytes, Time deadline);

 private:
  explicit StoreStream(UniqueFd fd);
  Result<std::size_t> receive(char* to, std::size_t size_bytes, Time deadline);

  UniqueFd fd_;
  std::vector<char> buffer_;  // read ahead; bytes from taken_ to filled_ are to be given out
  std::size_t taken_ = 0;
  std::size_t filled_ = 0;
};

// Waits for the time to pass; for back-off between attempts.
void wait_until(StoreStream::Time time);

}  // namespace drun
