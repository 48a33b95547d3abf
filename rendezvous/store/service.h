// edge. Serves the store to connections that its owner has accepted.
//
// Owner:   the server of the port (StoreServer, the coordinator); gives it a socket for each
// client.
//          Stop or destroy it before the io_context.
// Limits:  five eighths of the descriptors of this process. A client without a complete request is
//          closed after 30 s, or sooner to make room for another. StoreLimits.
// Thread:  the io_context's only.
// Errors:  none reach the owner. A client that sends something bad, or that does not read what it
//          is sent, loses its connection, with one line in the log: peer and reason. The others
//          never notice.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/pending_connections.h"
#include "rendezvous/store/session.h"
#include "rendezvous/store/store.h"

namespace drun::rendezvous {

class StoreService final : private StoreSessionHost {
 public:
  StoreService(asio::io_context& io, const StoreLimits& limits, Log log,
               std::chrono::milliseconds first_request_timeout = std::chrono::seconds(30));
  ~StoreService();
  StoreService(const StoreService&) = delete;
  StoreService& operator=(const StoreService&) = delete;

  // Serves it until either side closes. `first_bytes`: what was read from it already.
  void adopt(asio::ip::tcp::socket socket, std::string first_bytes);

  // Is a connection from there, which has not sent a byte for long, likely to be torch 1.13's
  // second one? It must not be closed: its client would spin on it for ever. (Listener's
  // keep_silent.)
  bool keeps_silent(const asio::ip::address& peer) const;

  // The next round: closes every connection and forgets every key. Not from within a handler of
  // this service.
  void clear();

  std::size_t connection_count() const { return sessions_.size(); }
  std::size_t key_count() const { return store_.key_count(); }
  std::size_t memory_bytes() { return store_.memory().used_bytes(); }

  // Idempotent: as clear, and adopts no more.
  void stop();

 private:
  Result<void> on_request(StoreSession& session, store::Request&& request) override;
  void on_turn_end() override;
  void on_end(StoreSession& session, std::string_view reason) override;
  std::vector<char>& read_buffer() override { return buffer_; }
  StoreMemory& memory() override { return store_.memory(); }

  void deliver(ConnectionId asker);
  void flush_later(StoreSession& session);
  void complain(const std::string& text);
  void send_away(std::optional<ConnectionId> newcomer, std::string_view reason);
  void arm_timer();

  // Of one address. torch 1.13 opens two connections, one of them silent.
  struct Peers {
    std::size_t legacy = 0;
    std::size_t silent = 0;
  };

  const StoreLimits limits_;
  const Log log_;
  LogLimit log_limit_;
  const std::size_t most_connections_;
  PendingConnections
      pending_;  // of sessions_, those without a whole request; without torch 1.13's silent ones
  asio::steady_timer timer_;
  bool is_timed_ = false;
  const std::shared_ptr<const bool> alive_ = std::make_shared<bool>();  // seen by the timer
  Store store_;
  std::unordered_map<ConnectionId, std::shared_ptr<StoreSession>> sessions_;
  std::map<asio::ip::address, Peers> peers_;  // none of them all zero
  std::vector<StoreReply> replies_;
  std::vector<std::shared_ptr<StoreSession>> to_flush_;
  std::vector<char> buffer_;
  ConnectionId last_id_ = 0;
  bool is_stopped_ = false;
};

}  // namespace drun::rendezvous
