#include "worker_lib/start/hosted_store.h"

#include <thread>
#include <utility>

#include "drun/error.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/store/server.h"
#include "worker_lib/base/threads.h"

namespace drun::worker {
namespace {

class HostedStore {
 public:
  explicit HostedStore(const rendezvous::StoreServerSpec& spec) {
    auto server = rendezvous::StoreServer::start(io_, spec, Log());
    if (!server) {
      throw WorkerError({.kind = WorkerError::Kind::Store,
                         .message = "rank 0 hosts the store, but " + server.error().message});
    }
    server_ = *std::move(server);
    try {
      thread_ = start_thread([this] { io_.run(); });
    } catch (const BackendFailure& failure) {
      throw WorkerError({.kind = failure.kind, .message = failure.what()});
    }
  }
  ~HostedStore() {
    asio::post(io_, [this] { server_->stop(); });  // leaves io_ with nothing to wait for
    thread_.join();
  }
  std::uint16_t port() const { return server_->port(); }
  HostedStore(const HostedStore&) = delete;
  HostedStore& operator=(const HostedStore&) = delete;

 private:
  asio::io_context io_{1};
  std::unique_ptr<rendezvous::StoreServer> server_;
  std::thread thread_;
};

}  // namespace

OpenStore host_store(const std::string& master_addr, std::uint16_t port) {
  error_code ec;
  const asio::ip::address literal = asio::ip::make_address(master_addr, ec);
  rendezvous::StoreServerSpec spec;
  spec.listen.port = port;
  spec.listen.loopback_only = master_addr == "localhost" || (!ec && literal.is_loopback());
  if (!ec && literal.is_loopback()) spec.listen.loopback_host = master_addr;
  const auto store = std::make_shared<HostedStore>(spec);
  return {.owner = store, .port = store->port()};
}

}  // namespace drun::worker
