// edge. The store's server: StoreService serves connections that its owner has accepted, and
// StoreServer listens for them on a separate port.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/pending_connections.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/session.h"
#include "rendezvous/store/store.h"

namespace drun::rendezvous {

// --- The store for connections that the owner has accepted
//
// Owner:   the server of the port (StoreServer or the coordinator), which passes it a socket for
//          each client. Stop or destroy it before the io_context.
// Limits:  StoreLimits, and five eighths of the descriptors of this process. A client without a
//          complete request is closed after 30 s, or earlier to make room for another one.
// Errors:  a client that sends invalid data or does not read its answers is disconnected, and one
//          line with its address and the reason is logged. Other clients are not affected.

class StoreService final : private StoreSessionHost {
 public:
  StoreService(asio::io_context& io, const StoreLimits& limits, Log log,
               std::chrono::milliseconds first_request_timeout = std::chrono::seconds(30));
  ~StoreService();
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;

  // Serves the connection until either side closes it. `first_bytes`: bytes already read from it.
  void adopt(asio::ip::tcp::socket socket, std::string first_bytes);

  // Whether a silent connection from there is probably torch 1.13's second one, which must stay
  // open: its client would retry in an endless loop. For Listener's keep_silent.
  bool keeps_silent(const asio::ip::address& peer) const;

  // For the next round: closes every connection and deletes every key. Must not be called from
  // within a handler of this service.
  void clear();

  std::size_t connection_count() const { return sessions_.size(); }
  std::size_t key_count() const { return store_.key_count(); }
  std::size_t memory_bytes() { return store_.memory().used_bytes(); }

  // As clear(), and accepts no more connections. Idempotent.
  void stop();

 private:
  static constexpr std::size_t kReadBytes = 256 * 1024;

  Result<void> on_request(StoreSession& session, store::Request&& request) override;
  void on_turn_end() override;
  void on_end(StoreSession& session, std::string_view reason) override;
  std::span<char> read_buffer() override { return {buffer_.get(), kReadBytes}; }
  StoreMemory& memory() override { return store_.memory(); }

  void flush_later(StoreSession& session);
  void complain(const std::string& text);
  void send_away(std::optional<ConnectionId> newcomer, std::string_view reason);
  void arm_timer();

  // The connections of one address. torch 1.13 opens two, one of them silent.
  struct Peers {
    std::size_t legacy = 0;
    std::size_t silent = 0;
  };

  const StoreLimits limits_;
  const Log log_;
  LogLimit log_limit_;
  const std::size_t most_connections_;
  // Those of sessions_ without a complete request, except torch 1.13's silent ones.
  PendingConnections pending_;
  DeadlineTimer timer_;
  Store store_;
  std::unordered_map<ConnectionId, std::shared_ptr<StoreSession>> sessions_;
  std::map<asio::ip::address, Peers> peers_;  // no entry has only zeros
  std::vector<StoreReply> replies_;
  std::vector<std::shared_ptr<StoreSession>> to_flush_;
  // Not initialized: a job without store traffic does not touch its pages.
  const std::unique_ptr<char[]> buffer_ = std::make_unique_for_overwrite<char[]>(kReadBytes);
  ConnectionId last_id_ = 0;
  bool is_stopped_ = false;
};

// --- A TCPStore server without a job (`drun store`)
//
// Owner:   the launcher; stop or destroy it before the io_context. It serves while the io_context
//          runs; after `stop` the io_context has no more work of this server.
// Errors:  start: those of Listener::open.

struct StoreServerSpec {
  ListenSpec listen{};
  StoreLimits limits{};
};

class StoreServer {
 public:
  static Result<std::unique_ptr<StoreServer>> start(asio::io_context& io,
                                                    const StoreServerSpec& spec, const Log& log);
  ~StoreServer() { stop(); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const { return listener_->port(); }
  std::size_t connection_count() const { return service_.connection_count(); }

  // Idempotent.
  void stop();

 private:
  StoreServer(asio::io_context& io, const StoreLimits& limits, const Log& log)
      : service_(io, limits, log) {}

  StoreService service_;
  std::unique_ptr<Listener> listener_;  // null only while starting
};

}  // namespace drun::rendezvous
