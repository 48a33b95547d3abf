#include "rendezvous/store/server.h"

#include <string>
#include <utility>

namespace drun::rendezvous {

Result<std::unique_ptr<StoreServer>> StoreServer::start(asio::io_context& io,
                                                        const StoreServerSpec& spec,
                                                        const Log& log) {
  std::unique_ptr<StoreServer> server(new StoreServer(io, spec.limits, log));
  StoreService& service = server->service_;
  Listener::Handlers handlers;
  handlers.on_store = [&service](asio::ip::tcp::socket socket, std::string first_bytes) {
    service.adopt(std::move(socket), std::move(first_bytes));
  };
  handlers.keep_silent = [&service](const asio::ip::address& peer) {
    return service.keeps_silent(peer);
  };
  Result<std::unique_ptr<Listener>> listener =
      Listener::open(io, spec.listen, std::move(handlers), log);
  if (!listener) return listener.error();
  server->listener_ = *std::move(listener);
  return server;
}

void StoreServer::stop() {
  if (listener_) listener_->stop();
  service_.stop();
}

}  // namespace drun::rendezvous
