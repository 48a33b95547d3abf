// edge. A TCPStore server without a job (`drun store`).
//
// Owner:   the launcher; stop or destroy it before the io_context. It serves while the io_context
//          runs; after `stop` the io_context has no more work of this server.
// Thread:  the io_context's only.
// Errors:  start: those of Listener::open.
#pragma once

#include <cstdint>
#include <memory>

#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/store/message.h"
#include "rendezvous/store/service.h"

namespace drun::rendezvous {

struct StoreServerSpec {
  ListenSpec listen{};
  StoreLimits limits{};
};

class StoreServer {
 public:
  static Result<std::unique_ptr<StoreServer>> start(asio::io_context& io,
                                                    const StoreServerSpec& spec, const Log& log);
  ~StoreServer() { stop(); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const { return listener_->port(); }
  std::size_t connection_count() const { return service_.connection_count(); }

  // Idempotent.
  void stop();

 private:
  StoreServer(asio::io_context& io, const StoreLimits& limits, const Log& log)
      : service_(io, limits, log) {}

  StoreService service_;
  std::unique_ptr<Listener> listener_;  // null only while starting
};

}  // namespace drun::rendezvous
