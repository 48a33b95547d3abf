// edge. Sockets of the tcp transport: all close on exec and never block.
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

// "10.0.0.5 40123 6f0c...", as a rank publishes it in the store.
std::string to_string(const Place& place);
// Throws: what another rank has published makes no sense.
Place parse_place(std::string_view text);

// Of random bytes.
Key make_key();

struct Listening {
  UniqueFd fd{};
  std::uint16_t port = 0;
};
// At that address of this host; at all of its addresses if it is not one of the host's own.
Listening listen_at(const std::string& address);

// A connection under way: writable when it is made or has failed, which error_of says.
UniqueFd dial(const Place& place);
// The pending error of a socket; 0: none.
int error_of(int fd);

// The next connection; empty: there is none now.
UniqueFd accept_from(int listener);

}  // namespace drun::worker::tcp
