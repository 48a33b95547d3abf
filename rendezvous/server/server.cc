#include "rendezvous/server/server.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/coordinator/node_line.h"
#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/leader/election_driver.h"
#include "rendezvous/leader/etcd_driver.h"
#include "rendezvous/leader/leader_election.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/peer_address.h"
#include "rendezvous/net/pending_connections.h"
#include "rendezvous/protocol/control_connection.h"
#include "rendezvous/protocol/control_wire.h"
#include "rendezvous/protocol/membership_text.h"
#include "rendezvous/server/coordination.h"
#include "rendezvous/server/log_collector.h"
#include "rendezvous/server/member_addresses.h"
#include "rendezvous/store/server.h"
#include "rendezvous/tls/tls_session.h"

namespace drun::rendezvous {

using asio::ip::tcp;

namespace {

// Connections without a hello so far; at most an eighth of the descriptors.
constexpr std::size_t kMostPendingConnections = 2048;
// A peer with more than this queued gets no further results of queries.
constexpr std::size_t kMostQueuedBytes = std::size_t{1} << 20;

ListenSpec listen_spec(const JoinSpec& spec) {
  ListenSpec listen;
  listen.listening = spec.listening;
  listen.port = spec.endpoint.port;
  error_code ec;
  const auto address = asio::ip::make_address(spec.master_addr, ec);
  const bool is_loopback_literal = !ec && address.is_loopback();
  listen.loopback_only = is_loopback_literal || spec.master_addr == "localhost";
  if (is_loopback_literal) listen.loopback_host = spec.master_addr;
  return listen;
}

constexpr std::size_t kMostVotersForSeat = 4;

}  // namespace

// Shared by its handlers until they have ended; stop() ends them.
class Server::Impl final : public std::enable_shared_from_this<Server::Impl>,
                           private ControlLink::Listener,
                           private Coordination::Host,
                           private ElectionDriver::Listener {
 public:
  struct LastResult {
    std::shared_ptr<const QueryResult> result{};
    std::optional<SharedResult> frames{};
  };

  Impl(asio::io_context& io, const JoinSpec& spec, Log log, std::function<void()> on_finished,
       OnLeader on_leader, LogSink* lines, OnTrouble on_trouble)
      : io_(io),
        timer_(io),
        pending_timer_(io),
        log_(std::move(log)),
        on_finished_(std::move(on_finished)),
        on_leader_(std::move(on_leader)),
        on_trouble_(std::move(on_trouble)),
        spec_(spec),
        pending_(std::min(kMostPendingConnections, descriptor_limit() / 8), spec.heartbeat_timeout),
        log_collector_(line_window_bytes(spec.node_count), spec.gathers_lines ? lines : nullptr) {
    if (spec.store_host == StoreHost::Agent)
      store_.emplace(io, StoreLimits{.memory_bytes = spec.store_memory_bytes}, log_);
  }

  Result<void> open(const JoinSpec& spec) {
    if (spec.secret) {
      auto tls = TlsContext::make(*spec.secret, spec.run_id);
      if (!tls) return tls.error();
      tls_ = *std::move(tls);
    }
    auto listener = rendezvous::Listener::open(io_, listen_spec(spec), arrivals(), log_);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    warn_of_strangers(spec);
    if (spec.seat || spec.etcd) {
      auto made = make_election(spec);
      if (!made) return made.error();
    }
    Coordination::Host& host = *this;
    coordination_.emplace(host, round_spec(spec, port()), self(), election_.get());
    if (election_) election_->start();
    return {};
  }

  std::optional<std::string> roll_call() const {
    const RoundState& round = coordination_->round();
    if (!is_leading() || round.phase != RoundPhase::Joining) return std::nullopt;
    const auto since = std::chrono::duration_cast<Milliseconds>(now() - round.opened);
    return progress_text(roll(round, now()), since);
  }

  std::optional<JobFacts> facts() const {
    if (!is_leading()) return std::nullopt;
    return facts_of(coordination_->round(), now());
  }

  void lines_taken(Peer peer, std::size_t cost) {
    const std::size_t granted = log_collector_.taken(peer, cost);
    if (granted > 0) apply(SendTo{peer, LinesTaken{granted}});
  }

  void stop() {
    is_stopped_ = true;
    if (coordination_) coordination_->stop();
    timer_.cancel();
    pending_timer_.cancel();
    if (listener_) listener_->stop();
    for (const auto& [peer, connection] : connections_) connection->close();
    connections_.clear();
    turned_away_.close();
    if (election_) election_->stop();
    if (store_) store_->stop();
  }

  rendezvous::Listener::Handlers arrivals() {
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
    if (tls_ || spec.node_count == 1 || spec.has_private_network || listen_spec(spec).loopback_only)
      return;
    log_.warning("every host that reaches port " + std::to_string(port()) +
                 " can join this job and use its store; give all nodes the same --secret-file, or "
                 "use a network that you trust");
  }

  // Why the store is closed to a client from there; empty: it may use it. This host always may.
  std::string store_objection(const tcp::socket& socket) const {
    error_code ec;
    const asio::ip::address peer = socket.remote_endpoint(ec).address();
    if (ec) return "its connection has closed";
    const std::string address = plain_address(peer);
    const bool is_here = address == plain_address(socket.local_endpoint(ec).address()) && !ec;
    if (is_here) return "";
    if (addresses_.is_barred(address, now()))
      return "the node at that address was lost, and its workers may still be running";
    if (tls_ && !addresses_.has(address) && !asio::ip::make_address(address).is_loopback())
      return "no node of this job has that address; a job with a secret serves only its nodes";
    return "";
  }

  void adopt_store(tcp::socket socket, std::string first_bytes) {
    error_code ec;
    if (!store_)
      return complain(
          "dropped a store client: this port is drun's rendezvous alone (--store=worker)");
    const std::string objection = store_objection(socket);
    if (objection.empty()) return store_->adopt(std::move(socket), std::move(first_bytes));
    complain("dropped a store client from " + plain_address(socket.remote_endpoint(ec).address()) +
             ": " + objection);
  }

  void adopt(tcp::socket socket, const std::string& first_bytes) {
    const bool is_tls = first_bytes.front() == kTlsFirstByte;
    if (is_tls != (tls_ != nullptr))
      return complain(
          turned_away_.add(std::move(socket), is_tls, coordination_->round().spec.endpoint));
    error_code ec;
    const std::string origin = origin_of(socket.remote_endpoint(ec).address());
    const Peer peer = ++last_peer_;
    const auto connection = std::make_shared<ControlConnection>(
        std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, peer,
        static_cast<ControlLink::Listener&>(*this), tls_);
    connections_.emplace(peer, connection);
    await_hello(peer, origin);
    connection->start(first_bytes);
  }

  std::shared_ptr<ControlLink> join_locally(ControlLink::Listener& member) {
    if (is_stopped_) return nullptr;
    const Peer peer = ++last_peer_;
    ControlLink::Listener& listener = *this;
    LocalLink link = make_local_link(io_, port(), peer, listener, member);
    connections_.emplace(peer, std::move(link.coordinators_end));
    await_hello(peer, "this process");
    return link.members_end;
  }

  void await_hello(Peer peer, std::string origin) {
    if (const auto gone = pending_.add(peer, std::move(origin), now()))
      drop_stranger(*gone, "too many have not said hello");
    arm_pending_timer();
  }

  void arm_pending_timer() {
    pending_timer_.set(pending_.next_expiry(), [self = shared_from_this()] {
      while (const auto overdue = self->pending_.take_expired(self->now()))
        self->drop_stranger(*overdue, "it did not say hello");
      self->arm_pending_timer();
    });
  }

  void drop_stranger(Peer peer, const std::string& reason) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    complain("dropped " + found->second->peer() + ": " + reason);
    found->second->close();
    connections_.erase(found);
  }

  void complain(const std::string& text) {
    if (log_limit_.allows(now())) log_.warning(text + log_limit_.left_out());
  }

  // The first frame ends a stranger's time: the round says whether it becomes a member.
  void on_frame(ControlLink& connection, std::string_view frame) override {
    const Peer peer = connection.id();
    Result<MemberMessage> message = decode_member_message(frame);
    if (!message) {
      connection.close();
      return on_end(connection,
                    {true, true, "broke the control protocol: " + message.error().message});
    }
    const bool is_new = pending_.contains(peer);
    if (auto* lines = std::get_if<Lines>(&*message); lines != nullptr && !is_new && is_leading()) {
      if (log_collector_.take(coordination_->round(), peer, std::move(*lines))) return;
      connection.close();
      return on_end(connection, {true, true, "sent lines that it may not send"});
    }
    pending_.remove(peer);
    const Hello* const hello = std::get_if<Hello>(&*message);
    if (is_new && hello != nullptr) told_[peer] = hello->addresses;
    if (const Ballot* ballot = std::get_if<Ballot>(&*message))
      return take_ballot(connection, *ballot, is_new);
    if (is_new) return coordination_->arrived(peer, connection.peer(), *std::move(message));
    coordination_->said(peer, connection.peer(), *std::move(message));
  }

  void reply(Peer peer, const CoordinatorMessage& message) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    found->second->send(encode(message));
  }

  void hang_up(Peer peer) override {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    found->second->finish();
    forget(peer);
  }

  void on_end(ControlLink& connection, const ConnectionEnd& end) override {
    if (end.is_wrong_peer) complain("dropped " + connection.peer() + ": it " + end.reason);
    const Peer peer = connection.id();
    forget(peer);
    coordination_->left(peer, end.is_wrong_peer ? "it " + end.reason : end.reason);
  }

  void forget(Peer peer) {
    connections_.erase(peer);
    voters_.erase(peer);
    pending_.remove(peer);
    addresses_.lose(peer, now() + spec_.kill_grace);
    told_.erase(peer);
    log_collector_.forget(peer);
  }

  void admit(const ControlLink& connection) {
    std::vector<std::string> addresses;
    const auto told = told_.extract(connection.id());
    if (!told.empty()) {
      for (const std::string& text : told.mapped()) addresses.push_back(plain_address(text));
    }
    addresses.push_back(connection.address());
    addresses_.add(connection.id(), std::move(addresses));
  }

  // --- The actions of the coordination

  void apply(const SendTo& send) override {
    const auto found = connections_.find(send.peer);
    if (found == connections_.end()) return;  // its end is already in the queue
    if (std::holds_alternative<Welcome>(send.message)) {
      found->second->set_frame_limit(kFrameLimitBytes);
      admit(*found->second);
    }
    found->second->send(encode(send.message));
  }

  void apply(const SendAll& send) override {
    const auto frame = std::make_shared<const std::string>(encode(send.message));
    for (const Peer peer : send.peers) {
      const auto found = connections_.find(peer);
      if (found != connections_.end()) found->second->send(frame);
    }
  }

  void apply(const SendResult& send) override {
    if (last_result_.result != send.result)
      last_result_ = {send.result, SharedResult(*send.result)};
    for (const Requester& each : send.requesters) {
      const auto found = connections_.find(each.peer);
      if (found == connections_.end()) continue;
      ControlLink& connection = *found->second;
      // Results are large, and a member can send any number of queries.
      if (connection.queued_bytes() > kMostQueuedBytes)
        reply(each.peer, QueryResult{each.number, "too many ask at the same time"});
      else
        connection.send(std::make_shared<const std::string>(last_result_.frames->head(each.number)),
                        last_result_.frames->body());
    }
  }

  // Accepts what has arrived so far, which may be members: their events wait until this one is
  // done.
  void apply(const ClearStore&) override {
    if (!store_) return;
    listener_->accept_waiting();
    store_->clear();
    listener_->close_silent();
  }

  void finished() override {
    asio::post(io_, [self = shared_from_this()] {
      if (!self->is_stopped_ && self->on_finished_) std::exchange(self->on_finished_, nullptr)();
    });
  }

  void set_timer(std::optional<Time> at) override {
    timer_.set(at, [self = shared_from_this()] { self->coordination_->tick(); });
  }

  void release_members() override {
    std::vector<Peer> members;
    for (const auto& [peer, connection] : connections_) {
      if (!voters_.contains(peer) && !pending_.contains(peer)) members.push_back(peer);
    }
    for (const Peer peer : members) hang_up(peer);
    if (store_) store_->clear();
  }

  void leader_known(const Endpoint& leader, std::uint64_t term) override {
    if (on_leader_) on_leader_(leader, term);
  }
  void leader_trouble(const std::string& reason) override {
    if (on_trouble_) on_trouble_(reason);
  }
  void log(LogLevel level, const std::string& text) override { log_.write(level, text); }
  Time now() const override { return std::chrono::steady_clock::now(); }

  // --- The election's connections

  Result<void> make_election(const JoinSpec& spec) {
    if (spec.etcd) {
      auto candidacy = EtcdElectionDriver::make(io_, spec, self(), log_, *this);
      if (!candidacy) return candidacy.error();
      election_ = *std::move(candidacy);
    } else {
      ElectionDriver::Listener& listener = *this;
      election_ = council_ = std::make_shared<ElectionDriver>(io_, spec, tls_, log_, listener);
    }
    return {};
  }

  void take_ballot(ControlLink& connection, const Ballot& ballot, bool is_new) {
    if (is_new && council_) {
      // A seat that is dropped here reconnects.
      if (voters_.size() >= kMostVotersForSeat * spec_.seats.size()) hang_up(*voters_.begin());
      voters_.insert(connection.id());
    }
    if (voters_.contains(connection.id())) return council_->hear(connection.id(), ballot);
    if (refusals_.allows(connection.address(), now()))
      log_.warning("dropped " + connection.peer() +
                   ": it asks for votes, but --rdzv-endpoint is one here");
    reply(connection.id(), Refused{{ErrorCode::Refused,
                                    "no list of endpoints was given there; "
                                    "write the same list on all nodes"}});
    hang_up(connection.id());
  }

  void on_refusal(Caller caller, const Error& error) override {
    reply(caller, Refused{error});
    hang_up(caller);
  }

  void on_news(const ElectionNews& news) override { coordination_->on_news(news); }
  void on_answer(Caller caller, const Vote& vote) override { reply(caller, vote); }

  std::uint16_t port() const { return listener_->port(); }
  Coordination& coordination() { return *coordination_; }
  bool is_leading() const { return coordination_->is_leading(); }
  Endpoint self() const { return {spec_.endpoint.host, port()}; }

 private:
  asio::io_context& io_;
  DeadlineTimer timer_;
  DeadlineTimer pending_timer_;
  const Log log_;
  LogLimit log_limit_;
  RefusalLimit refusals_;
  std::function<void()> on_finished_;
  const OnLeader on_leader_;
  const OnTrouble on_trouble_;
  const JoinSpec spec_;
  std::shared_ptr<const TlsContext> tls_;  // null: no secret
  PendingConnections pending_;             // of connections_, those without a hello so far
  RejectedConnections turned_away_;
  std::unordered_map<Peer, std::vector<std::string>> told_;  // addresses, until it is a member
  MemberAddresses addresses_;
  LogCollector log_collector_;
  std::optional<StoreService> store_;
  std::unique_ptr<rendezvous::Listener> listener_;
  std::unordered_map<Peer, std::shared_ptr<ControlLink>> connections_;
  Peer last_peer_ = 0;
  LastResult last_result_;  // encoded
  bool is_stopped_ = false;
  // Only if other agents may coordinate.
  std::shared_ptr<LeaderElection> election_;  // null: no other agent may coordinate
  std::shared_ptr<ElectionDriver> council_;   // the same object, with several endpoints
  std::set<Peer> voters_;                     // connections that ask for votes
  std::optional<Coordination> coordination_;  // set by open
};

Result<std::unique_ptr<Server>> Server::open(asio::io_context& io, const JoinSpec& spec, Log log,
                                             std::function<void()> on_finished, OnLeader on_leader,
                                             LogSink* lines, OnTrouble on_trouble) {
  auto impl = std::make_shared<Impl>(io, spec, std::move(log), std::move(on_finished),
                                     std::move(on_leader), lines, std::move(on_trouble));
  Result<void> opened = impl->open(spec);
  if (!opened) return opened.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { stop(); }
std::uint16_t Server::port() const { return impl_->port(); }
std::optional<std::string> Server::roll_call() const { return impl_->roll_call(); }
std::optional<JobFacts> Server::facts() const { return impl_->facts(); }
void Server::lines_taken(std::uint64_t peer, std::size_t cost) { impl_->lines_taken(peer, cost); }
void Server::set_deadline(std::optional<JobDeadline> deadline) {
  impl_->coordination().set_deadline(std::move(deadline));
}
bool Server::coordinator_ended() { return impl_->coordination().coordinator_ended(); }
std::shared_ptr<ControlLink> Server::join_locally(ControlLink::Listener& member) {
  return impl_->join_locally(member);
}
bool Server::is_leading() const { return impl_->is_leading(); }
void Server::stop() { impl_->stop(); }

}  // namespace drun::rendezvous
