// edge. Reads a row: requests by the thousand that nobody waits for an answer to.
//
// A sender who writes them in small pieces, as PyTorch's client does, pays for each piece that
// leaves at once: for waking its reader, and for the acknowledgement. So the reader looks at the
// socket now and then, is not woken in between, and leaves the last byte in the socket, though it
// was read: one that is emptied acknowledges at once. Pieces that wait for an acknowledgement stay
// with the sender, who sends them as one. (Without that byte, a row is a third to a half slower.)
//
// Shape:   made where a row begins; once it has ended, `end`, and read as usual again.
// Owner:   a session, whose socket outlives it.
// Thread:  the io_context's only.
// Errors:  none of its own: a socket at its end, or broken, gives nothing more, and the next usual
//          read says why.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/asio.h"

namespace drun::rendezvous {

class RowReader {
 public:
  // More than this at a time are not small requests.
  static constexpr std::size_t kMostBytes = 64 * 1024;

  explicit RowReader(asio::ip::tcp::socket& socket);

  // Calls `on_time(error_code)` once, when it is time to look.
  template <typename OnTime>
  void wait(OnTime on_time) {
    timer_.expires_after(kPause);
    timer_.async_wait(std::move(on_time));
  }

  // What came since, in `buffer`. Nothing: the row has ended.
  std::string_view read(std::vector<char>& buffer);

  // The socket as it was before.
  void end();

 private:
  // A request behind the row waits twice this for its answer, at most.
  static constexpr std::chrono::milliseconds kPause{1};

  asio::ip::tcp::socket* socket_;
  asio::steady_timer timer_;
  bool is_byte_left_ = false;  // read before, still in the socket
};

}  // namespace drun::rendezvous
