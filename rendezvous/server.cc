#include "rendezvous/server.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/control_connection.h"
#include "rendezvous/control_wire.h"
#include "rendezvous/listener.h"
#include "rendezvous/lobby.h"
#include "rendezvous/log_limit.h"
#include "rendezvous/member_addresses.h"
#include "rendezvous/peer_address.h"
#include "rendezvous/round/assembly.h"
#include "rendezvous/round/roll_call.h"
#include "rendezvous/round/round.h"
#include "rendezvous/store/service.h"
#include "rendezvous/tls_session.h"

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;

// Who has not said hello; at most an eighth of the descriptors.
constexpr std::size_t kMostStrangers = 2048;
// Who was told why it is not let in, and has not hung up yet.
constexpr std::size_t kMostTurnedAway = 64;

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
          .heartbeat_timeout = spec.heartbeat_timeout,
          .line_window_bytes = spec.gathers_lines ? line_window_bytes(spec.node_count) : 0};
}

}  // namespace

class Server::Impl final : public std::enable_shared_from_this<Server::Impl>,
                           private ControlConnection::Listener {
 public:
  Impl(asio::io_context& io, const JoinSpec& spec, Log log, std::function<void()> on_finished,
       LineTaker* lines)
      : io_(io),
        timer_(io),
        lobby_timer_(io),
        log_(std::move(log)),
        on_finished_(std::move(on_finished)),
        lobby_(std::min(kMostStrangers, descriptor_limit() / 8), spec.heartbeat_timeout),
        desk_(line_window_bytes(spec.node_count), spec.gathers_lines ? lines : nullptr) {
    if (spec.store_host == StoreHost::Agent) store_.emplace(io, StoreLimits(), log_);
  }

  Result<void> open(const JoinSpec& spec) {
    if (spec.secret) {
      auto tls = TlsContext::make(*spec.secret, spec.run_id);
      if (!tls) return tls.error();
      tls_ = *std::move(tls);
    }
    auto listener = rendezvous::Listener::open(io_, listen_spec(spec), handlers(), log_);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    warn_of_strangers(spec);
    state_ = open_round(round_spec(spec, listener_->port()), std::chrono::steady_clock::now());
    arm_timer();
    return {};
  }

  std::uint16_t port() const { return listener_->port(); }

  std::optional<std::string> roll_call() const {
    if (state_.phase != RoundPhase::Joining) return std::nullopt;
    const Time now = std::chrono::steady_clock::now();
    const auto since = std::chrono::duration_cast<Milliseconds>(now - state_.opened);
    return progress_text(roll(state_, now), since);
  }

  void lines_taken(Peer peer, std::size_t cost) {
    const std::size_t granted = desk_.taken(peer, cost);
    if (granted > 0) perform(SendTo{peer, LinesTaken{granted}});
  }

  void stop() {
    is_stopped_ = true;
    timer_.cancel();
    lobby_timer_.cancel();
    if (listener_) listener_->stop();
    for (const auto& [peer, connection] : connections_) connection->close();
    connections_.clear();
    for (const auto& connection : turned_away_) connection->close();
    turned_away_.clear();
    if (store_) store_->stop();
  }

 private:
  rendezvous::Listener::Handlers handlers() {
    return {
        .on_store =
            [this](tcp::socket socket, std::string first_bytes) {
              adopt_store(std::move(socket), std::move(first_bytes));
            },
        .on_control =
            [this](tcp::socket socket, const std::string& first_bytes) {
              adopt(std::move(socket), first_bytes);
            },
        .keep_silent =
            [this](const asio::ip::address& peer) { return store_ && store_->keeps_silent(peer); }};
  }

  void warn_of_strangers(const JoinSpec& spec) const {
    if (tls_ || spec.node_count == 1 || listen_spec(spec).loopback_only) return;
    log_.warning("whoever reaches port " + std::to_string(port()) +
                 " can join this job and use its store; give all nodes the same --secret-file, or "
                 "use a network that you trust");
  }

  // With a secret the store is for this host and for members.
  bool may_use_store(const tcp::socket& socket) const {
    if (!tls_) return true;
    error_code ec;
    const asio::ip::address peer = socket.remote_endpoint(ec).address();
    if (ec) return false;
    const std::string address = plain_address(peer);
    const bool is_here = address == plain_address(socket.local_endpoint(ec).address()) && !ec;
    return is_here || asio::ip::make_address(address).is_loopback() || addresses_.has(address);
  }

  void adopt_store(tcp::socket socket, std::string first_bytes) {
    error_code ec;
    if (!store_)
      return complain(
          "dropped a store client: this port is drun's rendezvous alone (--store=worker)");
    if (may_use_store(socket)) return store_->adopt(std::move(socket), std::move(first_bytes));
    complain("dropped a store client from " + plain_address(socket.remote_endpoint(ec).address()) +
             ": no node of this job has that address; with a secret the store is for them alone");
  }

  void adopt(tcp::socket socket, const std::string& first_bytes) {
    const bool is_tls = first_bytes.front() == kTlsFirstByte;
    if (is_tls != (tls_ != nullptr)) return turn_away(std::move(socket), is_tls);
    error_code ec;
    const std::string origin = origin_of(socket.remote_endpoint(ec).address());
    const Peer peer = ++last_peer_;
    auto session = tls_ ? std::make_unique<TlsSession>(tls_, TlsSession::Side::Accepting) : nullptr;
    const auto connection = std::make_shared<ControlConnection>(
        std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, peer,
        static_cast<ControlConnection::Listener&>(*this), std::move(session));
    connections_.emplace(peer, connection);
    if (const auto gone = lobby_.arrive(peer, origin, std::chrono::steady_clock::now()))
      drop_stranger(*gone, "too many have not said hello");
    arm_lobby_timer();
    connection->start(first_bytes);
  }

  // Each side says so in a line. A drun with a secret recognises the preamble of one without.
  void turn_away(tcp::socket socket, bool is_tls) {
    const auto connection = std::make_shared<ControlConnection>(
        std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, 0,
        static_cast<ControlConnection::Listener&>(*this));
    const auto say = [&connection](std::string bytes) {
      connection->send(std::make_shared<const std::string>(std::move(bytes)));
    };
    connection->start({});
    say(encode_preamble());
    if (!is_tls) {
      const Error error{ErrorCode::Refused,
                        state_.spec.endpoint +
                            " refused this node: the job there has a secret and this node has "
                            "none; give it the same --secret-file"};
      say(encode(CoordinatorMessage(Refused{error})));
    }
    connection->finish();
    complain("refused " + connection->peer() +
             (is_tls ? ": it has a secret, or is no drun, and this job has none; give all nodes "
                       "the same --secret-file, or none of them any"
                     : ": it has no secret, and this job has one; give it the same --secret-file"));
    turned_away_.push_back(connection);
    if (turned_away_.size() <= kMostTurnedAway) return;
    turned_away_.front()->close();
    turned_away_.pop_front();
  }

  void drop_stranger(Peer peer, const std::string& reason) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    complain("dropped " + found->second->peer() + ": " + reason);
    found->second->close();
    connections_.erase(found);
  }

  void complain(const std::string& text) {
    if (log_limit_.allows(std::chrono::steady_clock::now()))
      log_.warning(text + log_limit_.left_out());
  }

  // The first frame ends a stranger's time: the round says whether it becomes a member.
  void on_frame(ControlConnection& connection, std::string_view frame) override {
    const Peer peer = connection.id();
    Result<MemberMessage> message = decode_member_message(frame);
    if (!message) {
      connection.close();
      return on_end(connection,
                    {true, true, "broke the control protocol: " + message.error().message});
    }
    if (auto* lines = std::get_if<Lines>(&*message); lines != nullptr && !lobby_.has(peer)) {
      if (desk_.take(state_, peer, std::move(*lines))) return;
      connection.close();
      return on_end(connection, {true, true, "sent lines that it may not send"});
    }
    if (lobby_.has(peer)) {
      lobby_.leave(peer);
      if (const Hello* hello = std::get_if<Hello>(&*message)) told_[peer] = hello->addresses;
      handle(PeerArrived{peer, connection.peer()});
    }
    handle(PeerSaid{peer, *std::move(message)});
  }

  void on_end(ControlConnection& connection, const ConnectionEnd& end) override {
    if (end.is_wrong_peer) complain("dropped " + connection.peer() + ": it " + end.reason);
    const Peer peer = connection.id();
    forget(peer);
    handle(PeerLeft{peer, end.is_wrong_peer ? "it " + end.reason : end.reason});
  }

  void forget(Peer peer) {
    connections_.erase(peer);
    lobby_.leave(peer);
    addresses_.remove(peer);
    told_.erase(peer);
    desk_.forget(peer);
  }

  void admit(const ControlConnection& connection) {
    std::vector<std::string> addresses;
    const auto told = told_.extract(connection.id());
    if (!told.empty()) {
      for (const std::string& text : told.mapped()) addresses.push_back(plain_address(text));
    }
    addresses.push_back(connection.address());
    addresses_.add(connection.id(), std::move(addresses));
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
    if (std::holds_alternative<Welcome>(send.message)) {
      found->second->set_frame_limit(kFrameLimitBytes);
      admit(*found->second);
    }
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
    forget(drop.peer);
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

  void arm_lobby_timer() {
    const std::optional<Time> wanted = lobby_.deadline();
    if (std::exchange(is_lobby_timed_, wanted.has_value()) || !wanted) return;
    lobby_timer_.expires_at(*wanted);
    lobby_timer_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (ec || self->is_stopped_) return;
      self->is_lobby_timed_ = false;
      const Time now = std::chrono::steady_clock::now();
      while (const auto overdue = self->lobby_.overdue(now))
        self->drop_stranger(*overdue, "it did not say hello");
      self->arm_lobby_timer();
    });
  }

  asio::io_context& io_;
  asio::steady_timer timer_;
  asio::steady_timer lobby_timer_;
  const Log log_;
  LogLimit log_limit_;
  std::function<void()> on_finished_;
  std::shared_ptr<const TlsContext> tls_;  // null: no secret
  Lobby lobby_;                            // of connections_, those who have not said hello
  bool is_lobby_timed_ = false;
  std::deque<std::shared_ptr<ControlConnection>> turned_away_;
  std::unordered_map<Peer, std::vector<std::string>> told_;  // addresses, until it is a member
  MemberAddresses addresses_;
  LineDesk desk_;
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
                                             std::function<void()> on_finished, LineTaker* lines) {
  auto impl = std::make_shared<Impl>(io, spec, std::move(log), std::move(on_finished), lines);
  Result<void> opened = impl->open(spec);
  if (!opened) return opened.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { stop(); }
std::uint16_t Server::port() const { return impl_->port(); }
std::optional<std::string> Server::roll_call() const { return impl_->roll_call(); }
void Server::lines_taken(std::uint64_t peer, std::size_t cost) { impl_->lines_taken(peer, cost); }
void Server::stop() { impl_->stop(); }

}  // namespace drun::rendezvous
