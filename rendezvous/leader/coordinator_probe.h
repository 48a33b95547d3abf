// edge. For a node that is configured as the coordinator: is the given address really its own?
// Two nodes started with the same --node_rank=0 would otherwise wait for each other, each as its
// own coordinator, until the join timeout.
//
// How:     addresses of the endpoint that can be bound are this host's: nothing to ask. Otherwise
//          it sends a Hello to that address that only asks for objections; this node behind
//          a translated address recognises itself, another coordinator objects; so does, by its
//          mere existence, one of another secret. Every 5 s until stopped: the other one may start
//          later.
// Owner:   Client; destruction stops it silently.
// Thread:  the io_context's only. Names are looked up on Asio's own thread (connector.h).
// Errors:  on_objection, at most once: the other coordinator's words. Anything else is no news.
#pragma once

#include <functional>
#include <memory>

#include "rendezvous/net/asio.h"
#include "rendezvous/net/connector.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/net/tls_session.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

class CoordinatorProbe {
 public:
  using Objection = std::function<void(const Error&)>;

  explicit CoordinatorProbe(asio::io_context& io);
  ~CoordinatorProbe();
  CoordinatorProbe(const CoordinatorProbe&) = delete;
  CoordinatorProbe& operator=(const CoordinatorProbe&) = delete;

  // `hello` is the member's own; `is_probe` is set here. `tls`: null without a secret.
  void start(const Endpoint& endpoint, Hello hello, std::shared_ptr<const TlsContext> tls,
             Objection on_objection, Connector::OwnAddresses own = Connector::OwnAddresses::Refuse);
  void stop();

 private:
  class Impl;
  asio::io_context& io_;
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
