// A store on a free port of loopback, for tests in other languages. Prints the port and serves
// until its standard input ends.
#include <cstdio>

#include "rendezvous/store/server.h"

int main() {
  using namespace drun;
  asio::io_context io{1};
  rendezvous::StoreServerSpec spec;
  spec.listen.loopback_only = true;
  spec.limits.value_bytes = 64u << 20;
  const Log log([](LogLevel, std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  });
  auto server = rendezvous::StoreServer::start(io, spec, log);
  if (!server) {
    std::fprintf(stderr, "store_server: %s\n", server.error().message.c_str());
    return 1;
  }
  std::printf("%u\n", static_cast<unsigned>((*server)->port()));
  std::fflush(stdout);
  asio::posix::stream_descriptor input(io, dup(STDIN_FILENO));
  char byte = 0;
  asio::async_read(input, asio::buffer(&byte, 1),
                   [&server](error_code, std::size_t) { (*server)->stop(); });
  io.run();
  return 0;
}
