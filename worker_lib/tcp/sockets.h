// edge. Sockets of the tcp transport, all close-on-exec and nonblocking.
//
// Thread:  any.   Errors: throws BackendFailure (System), naming the address, the reason, and the
//                         limit on descriptors if it is reached.
#pragma once

#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"
#include "worker_lib/tcp/frames.h"

namespace drun::worker::tcp {

// "10.0.0.5 40123 6f0c... proves": the text that a rank publishes in the store. The last word only
// with a job key.
std::string to_string(const Place& place);
// Throws if the text, which another rank has published, is invalid.
Place parse_place(std::string_view text);

// Makes a random key.
Key make_key();
// The bytes of 2 * `size` hexadecimal digits. Absent for any other text.
template <std::size_t size>
std::optional<std::array<char, size>> bytes_of_hex(std::string_view text) {
  std::array<char, size> bytes{};
  bool is_hex = text.size() == 2 * size;
  for (std::size_t i = 0; is_hex && i < size; ++i) {
    unsigned char byte = 0;
    const char* const at = text.data() + 2 * i;
    is_hex = std::from_chars(at, at + 2, byte, 16).ptr == at + 2;
    bytes[i] = static_cast<char>(byte);
  }
  return is_hex ? std::optional(bytes) : std::nullopt;
}

struct Listening {
  UniqueFd fd{};
  std::uint16_t port = 0;
};
// Listens at this address, or at all addresses of this host if it is not one of them.
Listening listen_at(const std::string& address);

// Starts a connection, with Reno as its congestion control if the address is this host's. The
// socket becomes writable when it is connected or has failed; error_of tells which. Throws System
// if this host cannot open a connection, PeerLost if the address cannot be reached.
UniqueFd dial(const Place& place);
// The pending error of a socket, which is none afterwards; 0: none.
int error_of(int fd);
// Whether the error means that the network, not the other process, has ended the connection.
bool is_network_error(int error);

// The next connection. Empty: errno has the reason, EAGAIN if none is waiting.
UniqueFd accept_from(int listener);

// The kernel delays acknowledgments, as for interactive connections, until it decides otherwise.
// tcp(7), TCP_QUICKACK.
void delay_acknowledgments(int fd);

// "`what`: " and the text of errno.
BackendFailure system_failure(const std::string& what);

}  // namespace drun::worker::tcp
