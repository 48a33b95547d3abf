// edge. Listens on the coordinator's port, accepts connections and passes each one to the handler
// of its protocol, which the first byte selects.
//
//   accepted -> silent -- first byte --> 0x00, 0x01..0x0c   on_store
//                  |                     'd', 0x16           on_control ("drun...", or TLS)
//                  |                     else                closed, one line in the log
//                  +-- 30 s, or too many silent --> closed (or on_store, see keep_silent)
//
// Limits:  at most most_silent silent connections, and at most half of the descriptors of this
//          process, so that they cannot keep others out. pending_connections.h selects the
//          connection to close.
// Owner:   the server of the port; `stop` or destruction closes the listening sockets and all
//          silent connections. Handlers must not destroy the Listener, but may call stop.
// Calls:   handlers are called from the event loop, once per connection.
// Errors:  open: System "cannot listen on port 29500: address already in use; ...". After that
//          only stop ends a Listener: without free descriptors it pauses and logs that.
// Sockets: those passed to handlers are non-blocking, close-on-exec and TCP_NODELAY.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous {

struct ListenSpec {
  std::uint16_t port = 0;                     // 0: any free one
  std::string port_option = "--master-port";  // for the remedy in errors
  // Listen only on 127.0.0.1 and ::1 (if it exists), with the same port. Otherwise on all addresses
  // of the host, IPv6 and IPv4.
  bool loopback_only = false;
  // With loopback_only: one more loopback address, as a literal ("127.0.0.5"). Empty: none.
  std::string loopback_host{};
  std::chrono::milliseconds first_byte_timeout{std::chrono::seconds(30)};
  // Beyond this many silent connections, one is handled as if it had timed out.
  std::size_t most_silent = 16384;
  // All on one port, from open_listen_sockets. If not empty, `port` and the loopback settings are
  // ignored.
  std::vector<ListeningFd> listening{};
};

class Listener {
 public:
  struct Handlers {
    // `first_bytes`: all bytes read so far; not empty, except after keep_silent.
    std::function<void(asio::ip::tcp::socket, std::string first_bytes)> on_store;
    std::function<void(asio::ip::tcp::socket, std::string first_bytes)> on_control;
    // Called when a silent connection times out. True passes it to on_store with empty first_bytes
    // instead of closing it: torch 1.13 opens a second connection that sends nothing unless keys
    // are watched. Absent: close.
    std::function<bool(const asio::ip::address& peer)> keep_silent;
  };

  static Result<std::unique_ptr<Listener>> open(asio::io_context& io, const ListenSpec& spec,
                                                Handlers handlers, Log log);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const;
  std::size_t silent_count() const;

  // Accepts connections and passes on those whose first bytes have arrived, without waiting for the
  // loop. Called before a StoreService is cleared, so that the clear covers them.
  void accept_waiting();

  // Closes every connection that has not sent a byte yet. Called after the store is cleared: bytes
  // that a dead worker sent in an earlier round and TCP still retransmits must not reach the new
  // round's store. A live client connects again.
  void close_silent();

  // Idempotent. No handler is called after it.
  void stop();

 private:
  class Impl;
  explicit Listener(std::shared_ptr<Impl> impl);

  std::shared_ptr<Impl> impl_;
};

// --- Listening sockets

// Listening and non-blocking; accepted connections have TCP_NODELAY.
struct ListenSocket {
  UniqueFd fd;
  bool is_v6 = false;
};
struct ListenSockets {
  std::vector<ListenSocket> sockets;
  std::uint16_t port = 0;
};

// Opens the sockets for `spec`, all on one port. Errors: System (port in use, not permitted), Usage
// (loopback_host is not a loopback address), with the port and the remedy.
Result<ListenSockets> open_listen_sockets(const ListenSpec& spec);

}  // namespace drun::rendezvous
