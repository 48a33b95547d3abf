#include "rendezvous/member/client.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/random_instance.h"
#include "rendezvous/base/result.h"
#include "rendezvous/member/coordinator_probe.h"
#include "rendezvous/member/member.h"
#include "rendezvous/net/connector.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/net/peer_address.h"
#include "rendezvous/protocol/control_connection.h"
#include "rendezvous/protocol/control_wire.h"
#include "rendezvous/tls/tls_session.h"

namespace drun::rendezvous {
namespace {

AgedFailure aged(SeenFailure seen, Time now) {
  using std::chrono::microseconds;
  const auto age = std::chrono::duration_cast<microseconds>(now - seen.seen);
  return {std::move(seen.failure), std::max(age, microseconds(0))};
}

// The agent of an elected coordinator connects over loopback, so that it does not depend on name
// lookups.
Endpoint dialled(const JoinSpec& spec) {
  return spec.is_coordinator ? Endpoint{"localhost", spec.endpoint.port} : spec.endpoint;
}

}  // namespace

class Client::Impl final : public std::enable_shared_from_this<Client::Impl>,
                           private ControlLink::Listener {
 public:
  Impl(asio::io_context& io, JoinSpec spec, std::string host, Log log, Client::Listener& listener,
       Client::LineListener* lines, Client::JoinLocally join_locally)
      : io_(io),
        timer_(io),
        connector_(io, nullptr, spec.book),
        probe_(io),
        log_(std::move(log)),
        listener_(&listener),
        lines_(lines),
        join_locally_(std::move(join_locally)),
        state_(new_member({.join = std::move(spec),
                           .host = std::move(host),
                           .pid = static_cast<int>(::getpid()),
                           .instance = random_instance()})) {}

  void handle(const MemberEvent& event) {
    if (listener_ == nullptr) return;
    for (MemberAction& action : step(state_, event, std::chrono::steady_clock::now()))
      std::visit([this](auto& each) { apply(each); }, action);
    if (listener_ == nullptr) return;
    timer_.set(deadline(state_), [self = shared_from_this()] { self->handle(MemberTick{}); });
  }

  void start() {
    const JoinSpec& join = state_.spec.join;
    if (join.secret) {
      auto tls = TlsContext::make(*join.secret, join.run_id);
      if (!tls) return handle(OtherCoordinator{tls.error()});
      tls_ = *std::move(tls);
    }
    handle(MemberStart{});
    const bool is_own = find_addresses(join.book, join.endpoint) != nullptr;
    if (!join.is_coordinator || join.node_count == 1 || join.seat || is_own) return;
    probe_.start(join.endpoint, hello_of(state_.spec), tls_,
                 [this](const Error& error) { handle(OtherCoordinator{error}); });
  }

  void close() {
    listener_ = nullptr;
    lines_ = nullptr;
    timer_.cancel();
    connector_.cancel();
    probe_.stop();
    if (connection_) connection_->close();
    connection_.reset();
  }

 private:
  void apply(Connect&) {
    if (join_locally_)
      return asio::post(io_, [self = shared_from_this()] { self->connect_locally(); });
    connector_.start(
        dialled(state_.spec.join), Connector::OwnAddresses::Connect,
        [this](Result<asio::ip::tcp::socket> socket) { dialled_up(std::move(socket)); });
  }
  void apply(SendToCoordinator& said) {
    if (connection_) connection_->send(encode(said.message));
  }
  void apply(Disconnect&) {
    connector_.cancel();
    if (connection_) connection_->finish();
    drop_connection();
  }
  void apply(AvoidAddress&) {
    const JoinSpec& join = state_.spec.join;
    if (find_addresses(join.book, join.endpoint) != nullptr) connector_.avoid_address();
  }
  void apply(StartWorkers& start) {
    probe_.stop();
    deliver(&Client::Listener::on_world, start.world);
  }
  void apply(StopWorkers& stop) {
    post([stop](Client::Listener& to) { to.on_stop(stop.round, stop.notice); });
  }
  void apply(End& end) {
    probe_.stop();
    deliver(&Client::Listener::on_outcome, end.outcome);
  }
  void apply(NodeQuery& query) { deliver(&Client::Listener::on_node_query, query); }
  void apply(QueryResult& result) { deliver(&Client::Listener::on_query_result, result); }
  void apply(ShowHang& hang) { deliver(&Client::Listener::on_hang, hang.found); }
  void apply(ShowLeftOut& left_out) { deliver(&Client::Listener::on_left_out, left_out.node); }
  void apply(ShowFault& shown) { deliver(&Client::Listener::on_fault, shown.fault); }
  void apply(LogLine& line) { log_.write(line); }

  // Moves `value` to the listener.
  template <typename Value>
  void deliver(void (Client::Listener::*callback)(const Value&), Value& value) {
    post([callback, value = std::move(value)](Client::Listener& to) { (to.*callback)(value); });
  }
  // Not called at once, because the listener may call back.
  template <typename Call>
  void post(Call call) {
    asio::post(io_, [self = shared_from_this(), call = std::move(call)] {
      if (self->listener_ != nullptr) call(*self->listener_);
    });
  }

  void connect_locally() {
    if (listener_ == nullptr) return;
    connection_ = join_locally_(*this);
    if (!connection_) return handle(ConnectFailed{"the coordinator has ended", false});
    handle(Connected{connection_->address()});
  }

  void dialled_up(Result<asio::ip::tcp::socket> socket) {
    if (!socket)
      return handle(
          ConnectFailed{socket.error().message, socket.error().code == ErrorCode::Refused});
    error_code ec;
    const std::string address = plain_address(socket->remote_endpoint(ec).address());
    const auto connection = std::make_shared<ControlConnection>(
        *std::move(socket), ControlConnection::Side::Connecting, kFrameLimitBytes, 0,
        static_cast<ControlLink::Listener&>(*this), tls_);
    connection_ = connection;
    connection->start({});
    handle(Connected{address});
  }

  void on_frame(ControlLink& connection, std::string_view frame) override {
    Result<CoordinatorMessage> message = decode_coordinator_message(frame);
    if (message) {
      if (listener_ != nullptr) listener_->on_message(*message);
      hear_of_lines(*message);
      return handle(Heard{*std::move(message)});
    }
    connection.close();
    on_end(connection, {true, true, "broke the control protocol: " + message.error().message});
  }

  void on_end(ControlLink&, const ConnectionEnd& end) override {
    drop_connection();
    if (end.is_wrong_peer) {
      const JoinSpec& join = state_.spec.join;
      const bool is_one =
          !join.is_coordinator && find_addresses(join.book, join.endpoint) != nullptr;
      if (is_one) connector_.reject_address(end.reason);
      return handle(WrongPeer{end.reason, is_one});
    }
    handle(ConnectionLost{end.reason, end.has_spoken});
  }

  void drop_connection() {
    connection_.reset();
    if (std::exchange(sends_lines_, false) && lines_ != nullptr) lines_->on_lines_lost();
  }

  void hear_of_lines(const CoordinatorMessage& message) {
    if (lines_ == nullptr) return;
    if (const auto* taken = std::get_if<LinesTaken>(&message); taken != nullptr && sends_lines_)
      return lines_->on_lines_taken(taken->bytes);
    const auto* welcome = std::get_if<Welcome>(&message);
    if (welcome == nullptr || welcome->line_window_bytes == 0 || sends_lines_) return;
    sends_lines_ = true;
    lines_->on_lines_wanted(welcome->line_window_bytes, [this](const Lines& lines) {
      if (connection_) connection_->send_bulk(std::make_shared<const std::string>(encode(lines)));
    });
  }

  asio::io_context& io_;
  DeadlineTimer timer_;
  Connector connector_;
  CoordinatorProbe probe_;
  std::shared_ptr<ControlLink> connection_;
  std::shared_ptr<const TlsContext> tls_;  // null: no secret
  const Log log_;
  Client::Listener* listener_;   // null after close
  Client::LineListener* lines_;  // null: none, or after close
  const Client::JoinLocally join_locally_;
  bool sends_lines_ = false;
  MemberState state_;
};

Client::Client(asio::io_context& io, JoinSpec spec, std::string host, Log log, Listener& listener,
               LineListener* lines, JoinLocally join_locally)
    : impl_(std::make_shared<Impl>(io, std::move(spec), std::move(host), std::move(log), listener,
                                   lines, std::move(join_locally))) {}
Client::~Client() { close(); }

void Client::start() { impl_->start(); }
void Client::report_failure(SeenFailure failure) {
  impl_->handle(OwnFailure{aged(std::move(failure), std::chrono::steady_clock::now())});
}
void Client::report_success(int round) { impl_->handle(OwnSuccess{round}); }
void Client::report_stopped(int round, std::vector<SeenFailure> failures, std::string unusable,
                            WorkProgress progress) {
  const Time now = std::chrono::steady_clock::now();
  OwnStopped stopped{.round = round, .unusable = std::move(unusable), .progress = progress};
  for (SeenFailure& failure : failures) stopped.failures.push_back(aged(std::move(failure), now));
  impl_->handle(stopped);
}
void Client::query(Query query) { impl_->handle(std::move(query)); }
void Client::answer(NodeAnswer answer) { impl_->handle(std::move(answer)); }
void Client::report_times(const NodeTimes& times) { impl_->handle(OwnTimes{times}); }
void Client::report_speed(int round, NodeSpeed speed) {
  impl_->handle(OwnSpeed{round, std::move(speed)});
}
void Client::report_suspicion(int round, std::chrono::milliseconds settle,
                              std::vector<Failure> suspects) {
  impl_->handle(OwnSuspicion{round, settle, std::move(suspects)});
}
void Client::report_fault(InjectedFault fault) { impl_->handle(OwnFault{std::move(fault)}); }
void Client::name_leader(const Endpoint& leader, std::uint64_t term) {
  impl_->handle(LeaderNamed{leader, term});
}
void Client::name_trouble(const std::string& reason) { impl_->handle(LeaderUnknown{reason}); }
void Client::interrupt(int signal) { impl_->handle(OwnSignal{signal}); }
void Client::close() { impl_->close(); }

}  // namespace drun::rendezvous
