// edge. Checks that a node that is configured as the coordinator owns the given address. Otherwise,
// two nodes with --node_rank=0 would wait for each other until the join timeout, each as its own
// coordinator.
//
// How:     if the endpoint's address can be bound, it belongs to this host and needs no check.
//          Otherwise the probe sends a Hello to the address that only asks for objections. This
//          node behind a translated address recognizes its own probe; another coordinator objects.
//          A coordinator with another secret counts as an objection. Repeats every 5 s until
//          stopped, because the other coordinator may start later.
// Owner:   Client; destruction stops it silently.
// Errors:  on_objection, at most once, with the other coordinator's error. Other results are
//          ignored.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "rendezvous/net/asio.h"
#include "rendezvous/net/connector.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/protocol/control_connection.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/tls/tls_session.h"

namespace drun::rendezvous {

class CoordinatorProbe final : private ControlLink::Listener {
 public:
  using Objection = std::function<void(const Error&)>;

  explicit CoordinatorProbe(asio::io_context& io) : timer_(io), connector_(io) {}
  ~CoordinatorProbe() { stop(); }
  CoordinatorProbe(const CoordinatorProbe&) = delete;
  CoordinatorProbe& operator=(const CoordinatorProbe&) = delete;

  // `hello` is the member's own; `is_probe` is set here. `tls`: null without a secret.
  void start(const Endpoint& endpoint, Hello hello, std::shared_ptr<const TlsContext> tls,
             Objection on_objection, Connector::OwnAddresses own = Connector::OwnAddresses::Refuse);
  void stop();

 private:
  void ask();
  void connected(Result<asio::ip::tcp::socket> socket);
  void on_frame(ControlLink& connection, std::string_view frame) override;
  void on_end(ControlLink& connection, const ConnectionEnd& end) override;
  void object(const Error& error);
  void hang_up();

  DeadlineTimer timer_;
  Connector connector_;
  std::shared_ptr<ControlConnection> connection_;
  Endpoint endpoint_;
  Hello hello_;
  std::shared_ptr<const TlsContext> tls_;
  Objection on_objection_;  // empty after stop
  Connector::OwnAddresses own_ = Connector::OwnAddresses::Refuse;
};

}  // namespace drun::rendezvous
