// edge. The reading end of one worker's pipe.
//
// Flow:    reads when there is something and the listener is ready for it; a listener that is not
//          ready leaves the bytes in the pipe, whose writer then waits. wake() asks again.
// Owner:   a shared_ptr, as waiting handlers keep it; close() ends it. `buffer` and the listener
//          must live until close() or on_end.
// Thread:  the io_context's only.
// Errors:  a pipe that cannot be read has ended.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "rendezvous/asio.h"
#include "rendezvous/result.h"
#include "rendezvous/unique_fd.h"

namespace drun::agent {

struct Pipe {
  UniqueFd read_end;   // blocking, until a PipeReader has it
  UniqueFd write_end;  // blocking, as programs expect; another description than the read end's
};

// What a pipe has if nobody asks for another size (pipe(7)).
inline constexpr std::size_t kDefaultPipeBytes = std::size_t{64} << 10;

// `capacity_bytes` is a wish: the system may grant less (see pipe(7), pipe-user-pages-soft).
Result<Pipe> make_pipe(std::size_t capacity_bytes);

class PipeReader : public std::enable_shared_from_this<PipeReader> {
 public:
  struct Listener {
    std::function<bool()> is_ready;
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // once and only once: end of file, or close()
  };

  // `buffer` is shared by all readers: its content is the callback's only.
  PipeReader(asio::io_context& io, std::span<char> buffer, Listener listener);

  Result<void> start(UniqueFd read_end);
  void wake();
  bool is_closed() const { return is_closed_; }

  // Takes what the pipe holds at this instant, ready or not; a writer that goes on writing is not
  // followed.
  void take_now();

  // Not read any further.
  void close();

 private:
  enum class Got { Bytes, Nothing, End };

  Got read_once(std::size_t at_most_bytes);
  void wait();

  asio::posix::stream_descriptor pipe_;
  std::span<char> buffer_;
  Listener listener_;
  bool is_waiting_ = false;
  bool is_closed_ = true;
};

}  // namespace drun::agent
