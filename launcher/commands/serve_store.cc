#include "launcher/commands/commands.h"

#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "launcher/base/log.h"
#include "launcher/report/report.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/store/server.h"

namespace drun {

int serve_store(const StoreCommand& command) {
  const Log log = console_log({.invoked_as = "drun store"});
  asio::io_context io(1);
  rendezvous::StoreServerSpec spec;
  spec.listen.port = command.port;
  spec.listen.port_option = "--port";
  spec.listen.loopback_only = command.is_loopback_only;
  spec.limits.memory_bytes = command.memory_bytes;
  auto server = rendezvous::StoreServer::start(io, spec, log);
  if (!server) {
    log.error(server.error().message);
    return exit_code(server.error(), ExitCodeStyle::Drun);
  }
  log.info("serving a TCPStore on port " + std::to_string((*server)->port()) +
           (command.is_loopback_only ? ", loopback only"
                                     : ", all addresses; anyone who reaches it can use it"));
  asio::signal_set signals(io, SIGTERM, SIGINT);
  signals.async_wait([&server](const error_code& ec, int) {
    if (!ec) (*server)->stop();
  });
  io.run();
  return 0;
}

}  // namespace drun
