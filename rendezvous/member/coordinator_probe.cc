#include "rendezvous/member/coordinator_probe.h"

#include <utility>

#include "rendezvous/protocol/control_connection.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {
namespace {

constexpr std::chrono::seconds kInterval{5};

}  // namespace

class CoordinatorProbe::Impl final : public std::enable_shared_from_this<CoordinatorProbe::Impl>,
                                     private ControlLink::Listener {
 public:
  Impl(asio::io_context& io, Endpoint endpoint, Hello hello, std::shared_ptr<const TlsContext> tls,
       Objection on_objection, Connector::OwnAddresses own)
      : timer_(io),
        connector_(io),
        endpoint_(std::move(endpoint)),
        hello_(std::move(hello)),
        tls_(std::move(tls)),
        on_objection_(std::move(on_objection)),
        own_(own) {
    hello_.is_probe = true;
  }

  void ask() {
    connector_.start(endpoint_, own_, [this](Result<asio::ip::tcp::socket> socket) {
      connected(std::move(socket));
    });
  }

  void stop() {
    on_objection_ = nullptr;
    timer_.cancel();
    connector_.cancel();
    hang_up();
  }

 private:
  void connected(Result<asio::ip::tcp::socket> socket) {
    if (!socket && socket.error().code == ErrorCode::Closed)
      return;  // this host's address: no objection
    ask_again_later();
    if (!socket) return;
    connection_ = std::make_shared<ControlConnection>(
        *std::move(socket), ControlConnection::Side::Connecting, kFrameLimitBytes, 0,
        static_cast<ControlLink::Listener&>(*this),
        tls_ ? std::make_unique<TlsSession>(tls_, TlsSession::Side::Connecting) : nullptr);
    connection_->start({});
    connection_->send(std::make_shared<const std::string>(encode(MemberMessage(hello_))));
  }

  void ask_again_later() {
    timer_.expires_after(kInterval);
    timer_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (ec || !self->on_objection_) return;
      self->hang_up();
      self->ask();
    });
  }

  void on_frame(ControlLink&, std::string_view frame) override {
    hang_up();
    const Result<CoordinatorMessage> message = decode_coordinator_message(frame);
    const auto* refused = message ? std::get_if<Refused>(&*message) : nullptr;
    if (refused != nullptr && refused->error.code == ErrorCode::Refused) object(refused->error);
  }
  void on_end(ControlLink&, const ConnectionEnd& end) override {
    connection_.reset();
    if (end.is_other_job)
      object({ErrorCode::Refused, to_string(endpoint_) + " " + end.reason +
                                      "; this node is configured as the coordinator"});
  }

  void object(const Error& error) {
    timer_.cancel();
    if (const Objection tell = std::exchange(on_objection_, nullptr)) tell(error);
  }

  void hang_up() {
    if (connection_) connection_->close();
    connection_.reset();
  }

  asio::steady_timer timer_;
  Connector connector_;
  std::shared_ptr<ControlConnection> connection_;
  const Endpoint endpoint_;
  Hello hello_;
  const std::shared_ptr<const TlsContext> tls_;
  Objection on_objection_;  // empty after stop
  const Connector::OwnAddresses own_;
};

CoordinatorProbe::CoordinatorProbe(asio::io_context& io) : io_(io) {}
CoordinatorProbe::~CoordinatorProbe() { stop(); }

void CoordinatorProbe::start(const Endpoint& endpoint, Hello hello,
                             std::shared_ptr<const TlsContext> tls, Objection on_objection,
                             Connector::OwnAddresses own) {
  stop();
  impl_ = std::make_shared<Impl>(io_, endpoint, std::move(hello), std::move(tls),
                                 std::move(on_objection), own);
  impl_->ask();
}

void CoordinatorProbe::stop() {
  if (impl_) impl_->stop();
  impl_.reset();
}

}  // namespace drun::rendezvous
