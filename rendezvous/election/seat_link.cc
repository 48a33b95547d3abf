#include "rendezvous/election/seat_link.h"

#include <utility>

#include "rendezvous/control_wire.h"

namespace drun::rendezvous {

SeatLink::SeatLink(asio::io_context& io, int seat, Endpoint endpoint,
                   std::shared_ptr<const TlsContext> tls, Log log, Listener& listener)
    : seat_(seat),
      endpoint_(std::move(endpoint)),
      tls_(std::move(tls)),
      log_(std::move(log)),
      listener_(listener),
      connector_(io) {}

void SeatLink::ask(const Ballot& ballot) {
  if (connection_)
    return connection_->send(std::make_shared<const std::string>(encode(MemberMessage(ballot))));
  const bool is_dialling = waiting_.has_value();
  waiting_ = ballot;
  if (is_dialling) return;
  connector_.start(endpoint_, Connector::OwnAddresses::Connect,
                   [this](Result<asio::ip::tcp::socket> socket) { connected(std::move(socket)); });
}

void SeatLink::hang_up() {
  waiting_.reset();
  connector_.cancel();
  if (connection_) connection_->close();
  connection_.reset();
}

void SeatLink::connected(Result<asio::ip::tcp::socket> socket) {
  const std::optional<Ballot> ballot = std::exchange(waiting_, std::nullopt);
  if (!socket || !ballot) return fail(socket ? "" : socket.error().message);
  connection_ = std::make_shared<ControlConnection>(
      *std::move(socket), ControlConnection::Side::Connecting, kHelloFrameLimitBytes, 0,
      static_cast<ControlConnection::Listener&>(*this),
      tls_ ? std::make_unique<TlsSession>(tls_, TlsSession::Side::Connecting) : nullptr);
  connection_->start({});
  ask(*ballot);
}

void SeatLink::on_frame(ControlConnection& connection, std::string_view frame) {
  const Result<CoordinatorMessage> message = decode_coordinator_message(frame);
  if (const Vote* vote = message ? std::get_if<Vote>(&*message) : nullptr)
    return listener_.on_vote(seat_, *vote);
  const Refused* refused = message ? std::get_if<Refused>(&*message) : nullptr;
  if (refused != nullptr && log_limit_.allows(std::chrono::steady_clock::now()))
    log_.warning(to_string(endpoint_) +
                 " takes no part in the election of this job's coordinator: " +
                 refused->error.message + log_limit_.left_out());
  connection.close();
  fail("it does not answer ballots");
}

void SeatLink::on_end(ControlConnection&, const ConnectionEnd& end) {
  if (end.is_wrong_peer && log_limit_.allows(std::chrono::steady_clock::now()))
    log_.warning(to_string(endpoint_) + " " + end.reason + log_limit_.left_out());
  fail(end.reason);
}

void SeatLink::fail(const std::string& reason) {
  log_.debug("no answer from " + to_string(endpoint_) + ": " + reason);
  connection_.reset();
  listener_.on_seat_failed(seat_);
}

}  // namespace drun::rendezvous
