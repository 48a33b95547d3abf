// edge. The connection of a StoreClient: a blocking TCP stream with deadlines (StoreStream), and
// the detection of the server's dialect (shake_hands). Use it from any thread, one at a time.
// Deadlines are times of the steady clock.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/store/message.h"

namespace drun {

// A blocking TCP connection with deadlines.
//
// Errors:  Timeout, Closed (end of stream, reset), Unreachable (open), System. Messages contain
//          only the reason; the caller adds the operation. After an error the stream may have read
//          or written a part: close it, except after a Timeout of `read` that has read nothing.
class StoreStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Tries each address of the name once, in the system's order; the error is the last one's.
  static Result<StoreStream> open(const Endpoint& endpoint, Time deadline);
  // For a socket that is connected and nonblocking.
  explicit StoreStream(UniqueFd fd);

  Result<void> write(std::string_view bytes, Time deadline);
  // Reads exactly `size_bytes`.
  Result<void> read(char* to, std::size_t size_bytes, Time deadline);

 private:
  Result<std::size_t> receive(char* to, std::size_t size_bytes, Time deadline);

  UniqueFd fd_;
  std::vector<char> buffer_;  // read ahead; bytes from taken_ to filled_ are not returned yet
  std::size_t taken_ = 0;
  std::size_t filled_ = 0;
};

// Blocks until `time`, for the back-off between attempts.
void wait_until(StoreStream::Time time);

struct StoreHandshake {
  StoreStream stream;
  Dialect dialect = Dialect::Current;
};

// Connects to a TCPStore server and detects its dialect if `dialect` is absent. Retries with
// back-off until the deadline while nothing listens there. Errors, with the endpoint: Unreachable,
// Timeout (it accepts and does not answer), Refused (it uses another protocol).
Result<StoreHandshake> shake_hands(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                   StoreStream::Time deadline);

// Now plus `timeout`, limited to the range of the clock.
StoreStream::Time after(std::chrono::milliseconds timeout);

}  // namespace drun
