#include "rendezvous/server.h"

#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>

#include "rendezvous/control_connection.h"
#include "rendezvous/control_wire.h"
#include "rendezvous/listener.h"
#include "rendezvous/round.h"
#include "rendezvous/store_service.h"

namespace drun::rendezvous {
namespace {

ListenSpec listen_spec(const JoinSpec& spec) {
  ListenSpec listen;
  listen.port = spec.endpoint.port;
  error_code ec;
  const auto address = asio::ip::make_address(spec.master_addr, ec);
  const bool is_loopback_literal = !ec && address.is_loopback();
  listen.loopback_only = is_loopback_literal || spec.master_addr == "localhost";
  if (is_loopback_literal) listen.loopback_host = spec.master_addr;
  return listen;
}

RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port) {
  return {.run_id = spec.run_id,
          .node_count = spec.node_count,
          .elastic = spec.elastic,
          .max_restarts = spec.max_restarts,
          .restart = spec.restart,
          .endpoint = to_string(Endpoint{spec.endpoint.host, port}),
          .master_addr = spec.master_addr,
          .master_port = spec.master_port != 0 ? spec.master_port : port,
          .use_agent_store = spec.store_host == StoreHost::Agent,
          .join_timeout = spec.join_timeout,
          .heartbeat_timeout = spec.heartbeat_timeout};
}

}  // namespace

class Server::Impl final : public std::enable_shared_from_this<Server::Impl>,
                           private ControlConnection::Listener {
 public:
  Impl(asio::io_context& io, const JoinSpec& spec, Log log, std::function<void()> on_finished)
      : io_(io), timer_(io), log_(std::move(log)), on_finished_(std::move(on_finished)) {
    if (spec.store_host == StoreHost::Agent) store_.emplace(io, StoreLimits(), log_);
  }

  Result<void> open(const JoinSpec& spec) {
    auto listener = rendezvous::Listener::open(io_, listen_spec(spec), handlers(), log_);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    state_ = open_round(round_spec(spec, listener_->port()), std::chrono::steady_clock::now());
    arm_timer();
    return {};
  }

  std::uint16_t port() const { return listener_->port(); }

  void stop() {
    is_stopped_ = true;
    timer_.cancel();
    if (listener_) listener_->stop();
    for (const auto& [peer, connection] : connections_) connection->close();
    connections_.clear();
    if (store_) store_->stop();
  }

 private:
  rendezvous::Listener::Handlers handlers() {
    using Socket = asio::ip::tcp::socket;
    return {
        .on_store =
            [this](Socket socket, std::string first_bytes) {
              adopt_store(std::move(socket), std::move(first_bytes));
            },
        .on_control =
            [this](Socket socket, const std::string& first_bytes) {
              adopt(std::move(socket), first_bytes);
            },
        .keep_silent =
            [this](const asio::ip::address& peer) { return store_ && store_->keeps_silent(peer); }};
  }

  void adopt_store(asio::ip::tcp::socket socket, std::string first_bytes) {
    if (store_) return store_->adopt(std::move(socket), std::move(first_bytes));
    log_.warning("dropped a store client: this port is drun's rendezvous alone (--store=worker)");
  }

  void adopt(asio::ip::tcp::socket socket, const std::string& first_bytes) {
    const Peer peer = ++last_peer_;
    const auto connection = std::make_shared<ControlConnection>(
        std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, peer,
        static_cast<ControlConnection::Listener&>(*this));
    connections_.emplace(peer, connection);
    handle(PeerArrived{peer, connection->peer()});
    connection->start(first_bytes);
  }

  void on_frame(ControlConnection& connection, std::string_view frame) override {
    Result<MemberMessage> message = decode_member_message(frame);
    if (message) return handle(PeerSaid{connection.id(), *std::move(message)});
    connection.close();
    on_end(connection, {true, true, "broke the control protocol: " + message.error().message});
  }

  void on_end(ControlConnection& connection, const ConnectionEnd& end) override {
    if (end.is_wrong_peer) log_.warning("dropped " + connection.peer() + ": it " + end.reason);
    lose(connection, end.is_wrong_peer ? "it " + end.reason : end.reason);
  }

  void lose(ControlConnection& connection, std::string reason) {
    const Peer peer = connection.id();
    connections_.erase(peer);
    handle(PeerLeft{peer, std::move(reason)});
  }

  // Emptying the store accepts what has arrived so far, which may be members: their events wait
  // until the turn is over.
  void handle(RoundEvent event) {
    events_.push_back(std::move(event));
    if (std::exchange(is_turning_, true)) return;
    while (!events_.empty() && !is_stopped_) {
      const RoundEvent next = std::move(events_.front());
      events_.pop_front();
      for (const RoundAction& action : step(state_, next, std::chrono::steady_clock::now()))
        std::visit([this](const auto& deed) { perform(deed); }, action);
    }
    is_turning_ = false;
    if (!is_stopped_) arm_timer();
  }

  void perform(const SendTo& send) {
    const auto found = connections_.find(send.peer);
    if (found == connections_.end()) return;  // its end is already in the queue
    if (std::holds_alternative<Welcome>(send.message))
      found->second->set_frame_limit(kFrameLimitBytes);
    found->second->send(std::make_shared<const std::string>(encode(send.message)));
  }
  void perform(const SendAll& send) {
    const auto frame = std::make_shared<const std::string>(encode(send.message));
    for (const Peer peer : send.peers) {
      const auto found = connections_.find(peer);
      if (found != connections_.end()) found->second->send(frame);
    }
  }
  void perform(const Drop& drop) {
    const auto found = connections_.find(drop.peer);
    if (found == connections_.end()) return;
    found->second->finish();
    connections_.erase(found);
  }
  void perform(const ClearStore&) {
    if (!store_) return;
    listener_->accept_waiting();
    store_->clear();
  }
  void perform(const RoundLog& line) { log_.write(line.level, line.text); }
  void perform(const RoundOver&) {
    asio::post(io_, [self = shared_from_this()] {
      if (!self->is_stopped_ && self->on_finished_) std::exchange(self->on_finished_, nullptr)();
    });
  }

  void arm_timer() {
    const std::optional<Time> wanted = deadline(state_);
    if (wanted == armed_) return;
    armed_ = wanted;
    if (!wanted) {
      timer_.cancel();
      return;
    }
    timer_.expires_at(*wanted);
    timer_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (ec) return;
      self->armed_.reset();
      self->handle(RoundTick{});
    });
  }

  asio::io_context& io_;
  asio::steady_timer timer_;
  const Log log_;
  std::function<void()> on_finished_;
  std::optional<StoreService> store_;
  std::unique_ptr<rendezvous::Listener> listener_;
  std::unordered_map<Peer, std::shared_ptr<ControlConnection>> connections_;
  Peer last_peer_ = 0;
  RoundState state_;
  std::optional<Time> armed_;
  std::deque<RoundEvent> events_;
  bool is_turning_ = false;
  bool is_stopped_ = false;
};

Result<std::unique_ptr<Server>> Server::open(asio::io_context& io, const JoinSpec& spec, Log log,
                                             std::function<void()> on_finished) {
  auto impl = std::make_shared<Impl>(io, spec, std::move(log), std::move(on_finished));
  Result<void> opened = impl->open(spec);
  if (!opened) return opened.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { stop(); }
std::uint16_t Server::port() const { return impl_->port(); }
void Server::stop() { impl_->stop(); }

}  // namespace drun::rendezvous
