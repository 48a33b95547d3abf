// edge. Opens the sockets that a ListenSpec asks for: all on one port.
// Owner:   the caller; each socket is closed with its UniqueFd.   Thread: any.
// Errors:  System (port taken, not allowed), Usage (a loopback_host that is none), naming port and
//          remedy.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/listener.h"
#include "rendezvous/result.h"
#include "rendezvous/unique_fd.h"

namespace drun::rendezvous {

// Listening, non-blocking; what it accepts has TCP_NODELAY.
struct ListenSocket {
  UniqueFd fd;
  bool is_v6 = false;
};
struct ListenSockets {
  std::vector<ListenSocket> sockets;
  std::uint16_t port = 0;
};

Result<ListenSockets> open_listen_sockets(const ListenSpec& spec);

}  // namespace drun::rendezvous
