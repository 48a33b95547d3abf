// edge. The only include of Boost.Asio, so that its configuration is in one place. Use only
// features that exist in Boost 1.74 and in current versions: handlers, expires_at, any_io_executor,
// make_address; no coroutines.
#pragma once

#include <fcntl.h>

#include <utility>  // first: Boost 1.74's awaitable.hpp uses std::exchange without including it

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace drun {
namespace asio = boost::asio;
using boost::system::error_code;

// Asio's sockets are not close-on-exec, so workers would inherit them. `socket` must be open.
template <typename Socket>
void close_on_exec(Socket& socket) {
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

// Whether a nonblocking operation would have to wait.
inline bool is_again(error_code ec) {
  return ec == asio::error::would_block || ec == asio::error::try_again;
}

}  // namespace drun
