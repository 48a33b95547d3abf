#include "rendezvous/server.h"

#include <algorithm>
#include <utility>

#include "rendezvous/control_wire.h"
#include "rendezvous/peer_address.h"
#include "rendezvous/round/assembly.h"
#include "rendezvous/round/census_of.h"
#include "rendezvous/round/roll_call.h"
#include "rendezvous/server_impl.h"
#include "rendezvous/server_specs.h"

namespace drun::rendezvous {
namespace {

// Who has not said hello; at most an eighth of the descriptors.
constexpr std::size_t kMostStrangers = 2048;
// A peer with more than this queued gets no further stacks or censuses.
constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

CoordinatorMessage busy_answer(bool is_census, std::uint64_t question) {
  const char* reason = "too many ask at the same time";
  if (is_census) return CensusTold{question, {.note = reason}};
  return StacksTold{question, {.notes = {reason}}};
}

}  // namespace

Server::Impl::Impl(asio::io_context& io, const JoinSpec& spec, Log log,
                   std::function<void()> on_finished, OnLeader on_leader, LineTaker* lines,
                   OnTrouble on_trouble)
    : io_(io),
      timer_(io),
      pending_timer_(io),
      log_(std::move(log)),
      on_finished_(std::move(on_finished)),
      on_leader_(std::move(on_leader)),
      on_trouble_(std::move(on_trouble)),
      spec_(spec),
      pending_(std::min(kMostStrangers, descriptor_limit() / 8), spec.heartbeat_timeout),
      desk_(line_window_bytes(spec.node_count), spec.gathers_lines ? lines : nullptr) {
  if (spec.store_host == StoreHost::Agent) store_.emplace(io, store_limits(spec), log_);
}

Result<void> Server::Impl::open(const JoinSpec& spec) {
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

std::optional<std::string> Server::Impl::roll_call() const {
  if (!is_leading_ || state_.phase != RoundPhase::Joining) return std::nullopt;
  const Time now = std::chrono::steady_clock::now();
  const auto since = std::chrono::duration_cast<Milliseconds>(now - state_.opened);
  return progress_text(roll(state_, now), since);
}

std::optional<JobFacts> Server::Impl::facts() const {
  if (!is_leading_) return std::nullopt;
  return facts_of(state_, std::chrono::steady_clock::now());
}

void Server::Impl::lines_taken(Peer peer, std::size_t cost) {
  const std::size_t granted = desk_.taken(peer, cost);
  if (granted > 0) perform(SendTo{peer, LinesTaken{granted}});
}

// Of several endpoints another takes over, unless the job is over.
bool Server::Impl::host_ended() {
  if (is_stepping_down_) return true;
  if (!is_leading_) return false;
  if (authority_ && !tells_the_end(state_))
    perform(StepDown{});
  else
    handle(HostEnded{});
  return true;
}

void Server::Impl::stop() {
  is_stopped_ = true;
  timer_.cancel();
  pending_timer_.cancel();
  if (listener_) listener_->stop();
  for (const auto& [peer, connection] : connections_) connection->close();
  connections_.clear();
  turned_away_.close();
  if (authority_) authority_->stop();
  if (store_) store_->stop();
}

rendezvous::Listener::Handlers Server::Impl::arrivals() {
  return {
      .on_store =
          [this](tcp::socket socket, std::string first_bytes) {
            adopt_store(std::move(socket), std::move(first_bytes));
          },
      .on_control = [this](
                        tcp::socket socket,
                        const std::string& first_bytes) { adopt(std::move(socket), first_bytes); },
      .keep_silent =
          [this](const asio::ip::address& peer) { return store_ && store_->keeps_silent(peer); }};
}

void Server::Impl::warn_of_strangers(const JoinSpec& spec) const {
  if (tls_ || spec.node_count == 1 || listen_spec(spec).loopback_only) return;
  log_.warning("whoever reaches port " + std::to_string(port()) +
               " can join this job and use its store; give all nodes the same --secret-file, or "
               "use a network that you trust");
}

// Why the store is closed to a client from there; empty: it may use it. This host always may.
std::string Server::Impl::store_objection(const tcp::socket& socket) const {
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

void Server::Impl::adopt_store(tcp::socket socket, std::string first_bytes) {
  error_code ec;
  if (!store_)
    return complain(
        "dropped a store client: this port is drun's rendezvous alone (--store=worker)");
  const std::string objection = store_objection(socket);
  if (objection.empty()) return store_->adopt(std::move(socket), std::move(first_bytes));
  complain("dropped a store client from " + plain_address(socket.remote_endpoint(ec).address()) +
           ": " + objection);
}

void Server::Impl::adopt(tcp::socket socket, const std::string& first_bytes) {
  const bool is_tls = first_bytes.front() == kTlsFirstByte;
  if (is_tls != (tls_ != nullptr))
    return complain(turned_away_.add(std::move(socket), is_tls, state_.spec.endpoint));
  error_code ec;
  const std::string origin = origin_of(socket.remote_endpoint(ec).address());
  const Peer peer = ++last_peer_;
  auto session = tls_ ? std::make_unique<TlsSession>(tls_, TlsSession::Side::Accepting) : nullptr;
  const auto connection = std::make_shared<ControlConnection>(
      std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, peer,
      static_cast<ControlConnection::Listener&>(*this), std::move(session));
  connections_.emplace(peer, connection);
  if (const auto gone = pending_.add(peer, origin, std::chrono::steady_clock::now()))
    drop_stranger(*gone, "too many have not said hello");
  arm_pending_timer();
  connection->start(first_bytes);
}

void Server::Impl::drop_stranger(Peer peer, const std::string& reason) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  complain("dropped " + found->second->peer() + ": " + reason);
  found->second->close();
  connections_.erase(found);
}

void Server::Impl::complain(const std::string& text) {
  if (log_limit_.allows(std::chrono::steady_clock::now()))
    log_.warning(text + log_limit_.left_out());
}

// The first frame ends a stranger's time: the round says whether it becomes a member.
void Server::Impl::on_frame(ControlConnection& connection, std::string_view frame) {
  const Peer peer = connection.id();
  Result<MemberMessage> message = decode_member_message(frame);
  if (!message) {
    connection.close();
    return on_end(connection,
                  {true, true, "broke the control protocol: " + message.error().message});
  }
  const bool is_new = pending_.contains(peer);
  if (auto* lines = std::get_if<Lines>(&*message); lines != nullptr && !is_new && is_leading_) {
    if (desk_.take(state_, peer, std::move(*lines))) return;
    connection.close();
    return on_end(connection, {true, true, "sent lines that it may not send"});
  }
  pending_.remove(peer);
  const Hello* const hello = std::get_if<Hello>(&*message);
  if (is_new && hello != nullptr) told_[peer] = hello->addresses;
  if (const Ballot* ballot = std::get_if<Ballot>(&*message))
    return take_ballot(connection, *ballot, is_new);
  if (!is_leading_) return stand_by(connection, hello);
  if (is_new) handle(PeerArrived{peer, connection.peer()});
  if (authority_ && std::holds_alternative<Signalled>(*message))
    handle(SuccessorKnown{authority_->has_successor()});
  handle(PeerSaid{peer, *std::move(message)});
}

void Server::Impl::reply(Peer peer, const CoordinatorMessage& message) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  found->second->send(std::make_shared<const std::string>(encode(message)));
}

void Server::Impl::hang_up(Peer peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  found->second->finish();
  forget(peer);
}

void Server::Impl::on_end(ControlConnection& connection, const ConnectionEnd& end) {
  if (end.is_wrong_peer) complain("dropped " + connection.peer() + ": it " + end.reason);
  const Peer peer = connection.id();
  forget(peer);
  if (is_leading_) handle(PeerLeft{peer, end.is_wrong_peer ? "it " + end.reason : end.reason});
}

void Server::Impl::forget(Peer peer) {
  connections_.erase(peer);
  voters_.erase(peer);
  seekers_.leave(peer);
  pending_.remove(peer);
  addresses_.lose(peer, std::chrono::steady_clock::now() + spec_.kill_grace);
  told_.erase(peer);
  desk_.forget(peer);
}

void Server::Impl::admit(const ControlConnection& connection) {
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
void Server::Impl::handle(RoundEvent event) {
  events_.push_back(std::move(event));
  if (!is_turning_) turn();
}

void Server::Impl::turn() {
  is_turning_ = true;
  while (!events_.empty() && !is_stopped_ && may_act()) {
    const RoundEvent next = std::move(events_.front());
    events_.pop_front();
    for (const RoundAction& action : step(state_, next, std::chrono::steady_clock::now())) {
      if (!must_wait(action)) std::visit([this](const auto& deed) { perform(deed); }, action);
    }
  }
  is_turning_ = false;
  if (!is_stopped_ && is_leading_) arm_timer();
}

void Server::Impl::perform(const SendTo& send) {
  const auto found = connections_.find(send.peer);
  if (found == connections_.end()) return;  // its end is already in the queue
  if (std::holds_alternative<Welcome>(send.message)) {
    found->second->set_frame_limit(kFrameLimitBytes);
    admit(*found->second);
  }
  found->second->send(std::make_shared<const std::string>(encode(send.message)));
}

void Server::Impl::perform(const SendAll& send) {
  const auto frame = std::make_shared<const std::string>(encode(send.message));
  for (const Peer peer : send.peers) {
    const auto found = connections_.find(peer);
    if (found != connections_.end()) found->second->send(frame);
  }
}

void Server::Impl::perform(const SendAnswer& send) {
  if (last_answer_.message != send.answer) last_answer_ = {send.answer, SharedAnswer(*send.answer)};
  for (const Asker& asker : send.askers) {
    const auto found = connections_.find(asker.peer);
    if (found == connections_.end()) continue;
    ControlConnection& connection = *found->second;
    // Answers are large, and a member can ask for any number: beyond this it gets a short one.
    if (connection.queued_bytes() > kMostAnswerBytes) {
      const bool is_census = std::holds_alternative<CensusTold>(*send.answer);
      reply(asker.peer, busy_answer(is_census, asker.question));
      continue;
    }
    connection.send(std::make_shared<const std::string>(last_answer_.frames->head(asker.question)),
                    last_answer_.frames->body());
  }
}

void Server::Impl::perform(const ClearStore&) {
  if (!store_) return;
  listener_->accept_waiting();
  store_->clear();
  listener_->close_silent();
}

void Server::Impl::perform(const RoundOver&) {
  if (authority_) authority_->finish();
  end();
}

void Server::Impl::end() {
  asio::post(io_, [self = shared_from_this()] {
    if (!self->is_stopped_ && self->on_finished_) std::exchange(self->on_finished_, nullptr)();
  });
}

void Server::Impl::arm_timer() {
  timer_.set(deadline(state_), [self = shared_from_this()] { self->handle(RoundTick{}); });
}

void Server::Impl::arm_pending_timer() {
  const std::optional<Time> wanted = pending_.next_expiry();
  if (std::exchange(is_pending_timed_, wanted.has_value()) || !wanted) return;
  pending_timer_.expires_at(*wanted);
  pending_timer_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (ec || self->is_stopped_) return;
    self->is_pending_timed_ = false;
    const Time now = std::chrono::steady_clock::now();
    while (const auto overdue = self->pending_.take_expired(now))
      self->drop_stranger(*overdue, "it did not say hello");
    self->arm_pending_timer();
  });
}

Result<std::unique_ptr<Server>> Server::open(asio::io_context& io, const JoinSpec& spec, Log log,
                                             std::function<void()> on_finished, OnLeader on_leader,
                                             LineTaker* lines, OnTrouble on_trouble) {
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
bool Server::host_ended() { return impl_->host_ended(); }
bool Server::is_leading() const { return impl_->is_leading(); }
void Server::stop() { impl_->stop(); }

}  // namespace drun::rendezvous
