#include "rendezvous/server/server.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/coordinator/membership.h"
#include "rendezvous/coordinator/node_line.h"
#include "rendezvous/coordinator/node_queries.h"
#include "rendezvous/coordinator/round.h"
#include "rendezvous/coordinator/takeover.h"
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
#include "rendezvous/server/leader_lookups.h"
#include "rendezvous/server/log_collector.h"
#include "rendezvous/server/member_addresses.h"
#include "rendezvous/store/server.h"
#include "rendezvous/tls/tls_session.h"

namespace drun::rendezvous {

using asio::ip::tcp;

namespace {

// Connections without a hello so far; at most an eighth of the descriptors.
constexpr std::size_t kMostPendingConnections = 2048;
// How soon an overdue tick is tried again while this agent does not lead.
constexpr std::chrono::milliseconds kLeadRetry{100};
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
    state_ = open_round(round_spec(spec, listener_->port()), std::chrono::steady_clock::now());
    if (spec.seat || spec.etcd) return stand(spec);
    is_leading_ = true;
    arm_timer();
    return {};
  }

  std::optional<std::string> roll_call() const {
    if (!is_leading_ || state_.phase != RoundPhase::Joining) return std::nullopt;
    const Time now = std::chrono::steady_clock::now();
    const auto since = std::chrono::duration_cast<Milliseconds>(now - state_.opened);
    return progress_text(roll(state_, now), since);
  }

  std::optional<JobFacts> facts() const {
    if (!is_leading_) return std::nullopt;
    return facts_of(state_, std::chrono::steady_clock::now());
  }

  void lines_taken(Peer peer, std::size_t cost) {
    const std::size_t granted = log_collector_.taken(peer, cost);
    if (granted > 0) apply(SendTo{peer, LinesTaken{granted}});
  }

  void set_deadline(std::optional<JobDeadline> deadline) {
    job_deadline_ = std::move(deadline);
    if (is_leading_) handle(DeadlineKnown{job_deadline_});
  }

  // With several endpoints, another agent takes over unless the job is over.
  bool coordinator_ended() {
    if (is_stepping_down_) return true;
    if (!is_leading_) return false;
    if (election_ && !tells_the_end(state_))
      apply(StepDown{});
    else
      handle(CoordinatorEnded{});
    return true;
  }

  void stop() {
    is_stopped_ = true;
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
    if (addresses_.is_barred(address, std::chrono::steady_clock::now()))
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
      return complain(turned_away_.add(std::move(socket), is_tls, state_.spec.endpoint));
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
    if (const auto gone = pending_.add(peer, std::move(origin), std::chrono::steady_clock::now()))
      drop_stranger(*gone, "too many have not said hello");
    arm_pending_timer();
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
  void on_frame(ControlLink& connection, std::string_view frame) override {
    const Peer peer = connection.id();
    Result<MemberMessage> message = decode_member_message(frame);
    if (!message) {
      connection.close();
      return on_end(connection,
                    {true, true, "broke the control protocol: " + message.error().message});
    }
    const bool is_new = pending_.contains(peer);
    if (auto* lines = std::get_if<Lines>(&*message); lines != nullptr && !is_new && is_leading_) {
      if (log_collector_.take(state_, peer, std::move(*lines))) return;
      connection.close();
      return on_end(connection, {true, true, "sent lines that it may not send"});
    }
    pending_.remove(peer);
    const Hello* const hello = std::get_if<Hello>(&*message);
    if (is_new && hello != nullptr) told_[peer] = hello->addresses;
    if (const Ballot* ballot = std::get_if<Ballot>(&*message))
      return take_ballot(connection, *ballot, is_new);
    if (!is_leading_) return stand_by(connection, hello);
    if (is_new) return handle(PeerArrived{peer, connection.peer(), *std::move(message)});
    handle(PeerSaid{peer, *std::move(message)});
  }

  void reply(Peer peer, const CoordinatorMessage& message) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    found->second->send(encode(message));
  }

  void hang_up(Peer peer) {
    const auto found = connections_.find(peer);
    if (found == connections_.end()) return;
    found->second->finish();
    forget(peer);
  }

  void on_end(ControlLink& connection, const ConnectionEnd& end) override {
    if (end.is_wrong_peer) complain("dropped " + connection.peer() + ": it " + end.reason);
    const Peer peer = connection.id();
    forget(peer);
    if (is_leading_) handle(PeerLeft{peer, end.is_wrong_peer ? "it " + end.reason : end.reason});
  }

  void forget(Peer peer) {
    connections_.erase(peer);
    voters_.erase(peer);
    lookups_.leave(peer);
    pending_.remove(peer);
    addresses_.lose(peer, std::chrono::steady_clock::now() + spec_.kill_grace);
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

  // Emptying the store accepts what has arrived so far, which may be members: their events wait
  // until the turn is over.
  template <typename Event>
  void handle(Event event) {
    events_.emplace_back(std::move(event));
    if (!is_turning_) turn();
  }

  void turn() {
    is_turning_ = true;
    while (!events_.empty() && !is_stopped_ && may_act()) {
      const RoundEvent next = std::move(events_.front());
      events_.pop_front();
      const auto now = std::chrono::steady_clock::now();
      if (election_) state_.has_successor = election_->has_successor();
      for (const RoundAction& action : step(state_, next, now)) {
        if (!must_wait(action)) std::visit([this](const auto& each) { apply(each); }, action);
      }
    }
    is_turning_ = false;
    if (!is_stopped_ && is_leading_) arm_timer();
  }

  void apply(const SendTo& send) {
    const auto found = connections_.find(send.peer);
    if (found == connections_.end()) return;  // its end is already in the queue
    if (std::holds_alternative<Welcome>(send.message)) {
      found->second->set_frame_limit(kFrameLimitBytes);
      admit(*found->second);
    }
    found->second->send(encode(send.message));
  }

  void apply(const SendAll& send) {
    const auto frame = std::make_shared<const std::string>(encode(send.message));
    for (const Peer peer : send.peers) {
      const auto found = connections_.find(peer);
      if (found != connections_.end()) found->second->send(frame);
    }
  }

  void apply(const SendResult& send) {
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

  void apply(const ClearStore&) {
    if (!store_) return;
    listener_->accept_waiting();
    store_->clear();
    listener_->close_silent();
  }

  void apply(const RoundOver&) {
    if (election_) election_->finish();
    end();
  }

  void end() {
    asio::post(io_, [self = shared_from_this()] {
      if (!self->is_stopped_ && self->on_finished_) std::exchange(self->on_finished_, nullptr)();
    });
  }

  void arm_timer() {
    std::optional<Time> wanted = deadline(state_);
    // Without the lead a tick does nothing, so an overdue one must not run again and again until
    // the election has noticed.
    if (wanted && election_ && !election_->leads())
      wanted = std::max(*wanted, std::chrono::steady_clock::now() + kLeadRetry);
    timer_.set(wanted, [self = shared_from_this()] { self->handle(RoundTick{}); });
  }

  void arm_pending_timer() {
    pending_timer_.set(pending_.next_expiry(), [self = shared_from_this()] {
      const Time now = std::chrono::steady_clock::now();
      while (const auto overdue = self->pending_.take_expired(now))
        self->drop_stranger(*overdue, "it did not say hello");
      self->arm_pending_timer();
    });
  }

  // --- Election: this agent leads, or names the leader

  Result<void> stand(const JoinSpec& spec) {
    if (spec.etcd) {
      auto candidacy = EtcdElectionDriver::make(io_, spec, self(), log_, *this);
      if (!candidacy) return candidacy.error();
      election_ = *std::move(candidacy);
    } else {
      ElectionDriver::Listener& listener = *this;
      election_ = council_ = std::make_shared<ElectionDriver>(io_, spec, tls_, log_, listener);
    }
    election_->start();
    return {};
  }

  void take_ballot(ControlLink& connection, const Ballot& ballot, bool is_new) {
    if (is_new && council_) {
      // A seat that is dropped here reconnects.
      if (voters_.size() >= kMostVotersForSeat * spec_.seats.size()) hang_up(*voters_.begin());
      voters_.insert(connection.id());
    }
    if (voters_.contains(connection.id())) return council_->hear(connection.id(), ballot);
    complain("dropped " + connection.peer() +
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

  // A member connects here while another agent leads, or while there is no leader yet.
  void stand_by(ControlLink& connection, const Hello* hello) {
    const Peer peer = connection.id();
    if (hello == nullptr || lookups_.has(peer)) return hang_up(peer);
    if (const auto error = objection(state_, *hello)) {
      reply(peer, Refused{with_context(*error, state_.spec.endpoint + " refused this node")});
      return hang_up(peer);
    }
    const auto answer = lookups_.ask({peer, connection.peer(), *hello});
    if (answer) reply(peer, *answer);
    if (!answer && hello->lost_term > 0) election_->doubt();
    if (!lookups_.has(peer)) hang_up(peer);
  }

  void on_news(const ElectionNews& news) override {
    std::visit([this](const auto& each) { hear(each); }, news);
  }

  void hear(const Leading& lead) {
    if (is_leading_) return;  // it still sends the outcome of the job
    state_ = fence_.begin(round_spec(spec_, port()), lead.term, lead.before,
                          std::chrono::steady_clock::now());
    is_leading_ = true;
    log_.write(lead.before.rounds > 0 ? LogLevel::Warning : LogLevel::Debug,
               "this node coordinates the job from here on, at " + state_.spec.endpoint);
    name_leader(self(), lead.term);
    handle(DeadlineKnown{job_deadline_});
    for (LeaderLookups::Asking& asking : lookups_.take_all()) {
      handle(PeerArrived{asking.peer, asking.address, std::move(asking.hello)});
    }
    arm_timer();
  }

  void hear(const LeadLost& lost) {
    const RoundFence::Loss loss = fence_.lose(state_);
    if (loss == RoundFence::Loss::Over) return apply(RoundOver{});
    if (loss == RoundFence::Loss::Kept) return;
    log_.error("this node does not coordinate the job any more: " + lost.reason);
    release_members();
  }

  // From here on, this endpoint does not lead.
  void release_members() {
    is_leading_ = false;
    events_.clear();
    timer_.cancel();
    std::vector<Peer> members;
    for (const auto& [peer, connection] : connections_) {
      if (!voters_.contains(peer) && !pending_.contains(peer)) members.push_back(peer);
    }
    for (const Peer peer : members) hang_up(peer);
    if (store_) store_->clear();
    state_ = open_round(round_spec(spec_, port()), std::chrono::steady_clock::now());
  }

  void hear(const Following& following) {
    if (is_leading_) return;
    const auto& [leader, term] = following;
    const Follow follow{leader.host, leader.port, term};
    for (const Peer peer : lookups_.know(follow)) {
      reply(peer, follow);
      hang_up(peer);
    }
    log_.debug(to_string(leader) + " coordinates the job, term " + std::to_string(term));
    name_leader(leader, term);
  }

  void name_leader(const Endpoint& leader, std::uint64_t term) {
    if (on_leader_) on_leader_(leader, term);
  }

  // Applies the actions that were held back until every later leader is sure to know the round.
  void hear(const RoundKnown& known) {
    const std::vector<RoundAction> held = fence_.know(known.rounds);
    if (held.empty()) return;
    const bool was_turning = std::exchange(is_turning_, true);
    for (const RoundAction& action : held)
      std::visit([this](const auto& each) { apply(each); }, action);
    if (!was_turning) turn();
  }

  bool must_wait(const RoundAction& action) {
    if (!election_) return false;
    const RoundFence::Verdict verdict = fence_.judge(state_, action);
    if (verdict == RoundFence::Verdict::Ask) election_->want_round(record_of(state_));
    return verdict != RoundFence::Verdict::Do;
  }

  // Another coordinator continues the job.
  void apply(const StepDown&) {
    log_.info("this node does not coordinate the job any more: it leaves");
    is_stepping_down_ = true;
    release_members();
    election_->resign();
  }

  // Checked before each action: the lead may have expired while this process was stopped.
  bool may_act() {
    if (!election_ || election_->leads() || (is_leading_ && tells_the_end(state_))) return true;
    events_.clear();
    return false;
  }

  std::uint16_t port() const { return listener_->port(); }
  bool is_leading() const { return is_leading_; }
  Endpoint self() const { return {spec_.endpoint.host, port()}; }
  void on_answer(Caller caller, const Vote& vote) override { reply(caller, vote); }
  void hear(const Vacant&) { lookups_.forget_leader(); }

  void hear(const LeaderTrouble& trouble) {
    if (on_trouble_) on_trouble_(trouble.reason);
  }

  void hear(const Resigned&) { end(); }
  void apply(const Drop& drop) { hang_up(drop.peer); }
  void apply(const RoundLog& line) { log_.write(line.level, line.text); }

 private:
  asio::io_context& io_;
  DeadlineTimer timer_;
  DeadlineTimer pending_timer_;
  const Log log_;
  LogLimit log_limit_;
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
  RoundState state_;
  std::deque<RoundEvent> events_;
  bool is_turning_ = false;
  bool is_stopped_ = false;
  bool is_leading_ = false;
  bool is_stepping_down_ = false;  // until Resigned
  std::optional<JobDeadline> job_deadline_;
  // Only if other agents may coordinate.
  std::shared_ptr<LeaderElection> election_;  // null: no other agent may coordinate
  std::shared_ptr<ElectionDriver> council_;   // the same object, with several endpoints
  std::set<Peer> voters_;                     // connections that ask for votes
  LeaderLookups lookups_;
  RoundFence fence_;
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
  impl_->set_deadline(std::move(deadline));
}
bool Server::coordinator_ended() { return impl_->coordinator_ended(); }
std::shared_ptr<ControlLink> Server::join_locally(ControlLink::Listener& member) {
  return impl_->join_locally(member);
}
bool Server::is_leading() const { return impl_->is_leading(); }
void Server::stop() { impl_->stop(); }

}  // namespace drun::rendezvous
