#include "rendezvous/store/server.h"

#include <string>
#include <utility>

#include "rendezvous/net/peer_address.h"

namespace drun::rendezvous {

StoreService::StoreService(asio::io_context& io, const StoreLimits& limits, Log log,
                           std::chrono::milliseconds first_request_timeout)
    : limits_(limits),
      log_(std::move(log)),
      most_connections_(descriptor_limit() / 8 * 5),
      pending_(most_connections_, first_request_timeout),
      timer_(io),
      store_(limits) {}

StoreService::~StoreService() { stop(); }

void StoreService::adopt(asio::ip::tcp::socket socket, std::string first_bytes) {
  if (is_stopped_) return;
  if (sessions_.size() >= most_connections_)
    send_away(pending_.evict(), "others came before it had made a request");
  if (sessions_.size() >= most_connections_) {
    error_code ec;
    return complain("store: connection refused peer=" + peer_text(socket.remote_endpoint(ec)) +
                    " reason=\"there are " + std::to_string(sessions_.size()) +
                    " already; raise the limit of open files (ulimit -n)\"");
  }
  const ConnectionId id = ++last_id_;
  auto session = std::make_shared<StoreSession>(std::move(socket), id, limits_,
                                                static_cast<StoreSessionHost&>(*this));
  sessions_.emplace(id, session);
  if (first_bytes.empty()) {
    session->is_counted_as_silent = true;
    ++peers_[session->peer().address()].silent;
  } else {
    const auto now = std::chrono::steady_clock::now();
    send_away(pending_.add(id, origin_of(session->peer().address()), now),
              "others came before it had made a request");
    arm_timer();
  }
  session->start(std::move(first_bytes));
}

bool StoreService::keeps_silent(const asio::ip::address& peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.silent < found->second.legacy;
}

void StoreService::clear() {
  for (const auto& [id, session] : sessions_) session->close();
  for (const auto& [id, session] : sessions_) pending_.remove(id);
  sessions_.clear();
  peers_.clear();
  to_flush_.clear();
  replies_.clear();
  store_.clear();
}

void StoreService::stop() {
  is_stopped_ = true;
  timer_.cancel();
  clear();
}

Result<void> StoreService::on_request(StoreSession& session, store::Request&& request) {
  pending_.remove(session.id());
  const bool is_legacy = session.dialect() == Dialect::Legacy;
  if (is_legacy && !session.is_counted_as_legacy && !session.is_counted_as_silent) {
    session.is_counted_as_legacy = true;
    ++peers_[session.peer().address()].legacy;
  }
  const Result<void> result = store_.apply(session.id(), std::move(request), replies_);
  if (!result) return result;
  for (const StoreReply& reply : replies_) {
    if (reply.to == session.id()) {
      session.send(reply.answer);
      flush_later(session);
      continue;
    }
    const auto found = sessions_.find(reply.to);
    if (found == sessions_.end()) continue;
    StoreSession& other = *found->second;
    other.send(reply.answer);
    const bool is_push = std::holds_alternative<store::Changed>(reply.answer);
    if (is_push && other.unsent_bytes() > limits_.queued_bytes) other.is_overfull = true;
    flush_later(other);
  }
  replies_.clear();
  return {};
}

void StoreService::flush_later(StoreSession& session) {
  if (session.is_flush_due) return;
  session.is_flush_due = true;
  to_flush_.push_back(session.shared_from_this());
}

void StoreService::on_turn_end() {
  // Flushing may end a session. That wakes no waiter and queues nothing more.
  for (const std::shared_ptr<StoreSession>& session : to_flush_) {
    session->is_flush_due = false;
    session->flush();
    if (session->is_overfull && session->unsent_bytes() > limits_.queued_bytes) {
      session->end("it does not read the changes of the keys that it watches");
    }
    session->is_overfull = false;
  }
  to_flush_.clear();
}

void StoreService::send_away(std::optional<ConnectionId> newcomer, std::string_view reason) {
  const auto found = newcomer ? sessions_.find(*newcomer) : sessions_.end();
  if (found == sessions_.end()) return;
  const std::shared_ptr<StoreSession> session = found->second;
  session->end(reason);
}

void StoreService::arm_timer() {
  timer_.set(pending_.next_expiry(), [this] {
    while (const auto late = pending_.take_expired(std::chrono::steady_clock::now()))
      send_away(late, "it made no request in time");
    arm_timer();
  });
}

void StoreService::complain(const std::string& text) {
  if (log_limit_.allows(std::chrono::steady_clock::now()))
    log_.warning(text + log_limit_.left_out());
}

void StoreService::on_end(StoreSession& session, std::string_view reason) {
  if (!reason.empty())
    complain("store: connection closed peer=" + peer_text(session.peer()) + " reason=\"" +
             std::string(reason) + "\"");
  if (session.is_counted_as_legacy || session.is_counted_as_silent) {
    const auto peers = peers_.find(session.peer().address());
    if (session.is_counted_as_legacy) --peers->second.legacy;
    if (session.is_counted_as_silent) --peers->second.silent;
    if (peers->second.legacy == 0 && peers->second.silent == 0) peers_.erase(peers);
  }
  pending_.remove(session.id());
  store_.forget(session.id());
  sessions_.erase(session.id());
}

Result<std::unique_ptr<StoreServer>> StoreServer::start(asio::io_context& io,
                                                        const StoreServerSpec& spec,
                                                        const Log& log) {
  std::unique_ptr<StoreServer> server(new StoreServer(io, spec.limits, log));
  StoreService& service = server->service_;
  Listener::Handlers handlers;
  handlers.on_store = [&service](asio::ip::tcp::socket socket, std::string first_bytes) {
    service.adopt(std::move(socket), std::move(first_bytes));
  };
  handlers.keep_silent = [&service](const asio::ip::address& peer) {
    return service.keeps_silent(peer);
  };
  Result<std::unique_ptr<Listener>> listener =
      Listener::open(io, spec.listen, std::move(handlers), log);
  if (!listener) return listener.error();
  server->listener_ = *std::move(listener);
  return server;
}

void StoreServer::stop() {
  if (listener_) listener_->stop();
  service_.stop();
}

}  // namespace drun::rendezvous
