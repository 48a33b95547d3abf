#include "rendezvous/member/coordinator_probe.h"

#include <utility>

#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {
namespace {

constexpr std::chrono::seconds kInterval{5};

}  // namespace

void CoordinatorProbe::start(const Endpoint& endpoint, Hello hello,
                             std::shared_ptr<const TlsContext> tls, Objection on_objection,
                             Connector::OwnAddresses own) {
  stop();
  endpoint_ = endpoint;
  hello_ = std::move(hello);
  hello_.is_probe = true;
  tls_ = std::move(tls);
  on_objection_ = std::move(on_objection);
  own_ = own;
  ask();
}

void CoordinatorProbe::stop() {
  on_objection_ = nullptr;
  timer_.cancel();
  connector_.cancel();
  hang_up();
}

void CoordinatorProbe::ask() {
  connector_.start(endpoint_, own_,
                   [this](Result<asio::ip::tcp::socket> socket) { connected(std::move(socket)); });
}

void CoordinatorProbe::connected(Result<asio::ip::tcp::socket> socket) {
  if (!socket && socket.error().code == ErrorCode::Closed)
    return;  // this host's address: no objection
  timer_.set(std::chrono::steady_clock::now() + kInterval, [this] {
    hang_up();
    ask();
  });
  if (!socket) return;
  connection_ = std::make_shared<ControlConnection>(
      *std::move(socket), ControlConnection::Side::Connecting, kFrameLimitBytes, 0,
      static_cast<ControlLink::Listener&>(*this), tls_);
  connection_->start({});
  connection_->send(encode(MemberMessage(hello_)));
}

void CoordinatorProbe::on_frame(ControlLink&, std::string_view frame) {
  hang_up();
  const Result<CoordinatorMessage> message = decode_coordinator_message(frame);
  const auto* refused = message ? std::get_if<Refused>(&*message) : nullptr;
  if (refused != nullptr && refused->error.code == ErrorCode::Refused) object(refused->error);
}

void CoordinatorProbe::on_end(ControlLink&, const ConnectionEnd& end) {
  connection_.reset();
  if (end.is_other_job)
    object({ErrorCode::Refused, to_string(endpoint_) + " " + end.reason +
                                    "; this node is configured as the coordinator"});
}

void CoordinatorProbe::object(const Error& error) {
  timer_.cancel();
  if (const Objection tell = std::exchange(on_objection_, nullptr)) tell(error);
}

void CoordinatorProbe::hang_up() {
  if (connection_) connection_->close();
  connection_.reset();
}

}  // namespace drun::rendezvous
