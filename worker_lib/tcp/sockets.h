// edge. Sockets of the tcp transport, all close-on-exec and nonblocking.
//
// Thread:  any.   Errors: throws BackendFailure (System), naming the address and the reason.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/tcp/frames.h"

namespace drun::worker::tcp {

// "10.0.0.5 40123 6f0c...": the text that a rank publishes in the store.
std::string to_string(const Place& place);
// Throws if the text, which another rank has published, is invalid.
Place parse_place(std::string_view text);

// Makes a random key.
Key make_key();

struct Listening {
  UniqueFd fd{};
  std::uint16_t port = 0;
};
// Listens at this address, or at all addresses of this host if it is not one of them.
Listening listen_at(const std::string& address);

// Starts a connection. The socket becomes writable when it is connected or has failed; error_of
// tells which.
UniqueFd dial(const Place& place);
// The pending error of a socket; 0: none.
int error_of(int fd);

// The next connection; empty: none is waiting.
UniqueFd accept_from(int listener);

}  // namespace drun::worker::tcp
