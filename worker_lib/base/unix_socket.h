// edge. Unix sockets in the abstract namespace: short messages with descriptors, and the user of
// the peer.
//
// Errors:  functions that return a descriptor or an optional return none on failure and set errno.
// Thread:  any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::worker::unix_socket {

// A random name that cannot be guessed. Valid in this network namespace.
std::string random_name();

// accept on the socket does not block.
UniqueFd listen_at(const std::string& name, int backlog);
UniqueFd accept_from(int listener);
UniqueFd connect_to(const std::string& name, Deadline deadline);

// The user of the process that connected to the socket or listens at it.
std::optional<uid_t> peer_user(int socket);

// Sends one message with up to two descriptors. False if the peer has closed or does not read.
bool send_message(int socket, std::string_view text, const std::vector<int>& fds = {});

struct Message {
  std::string text;
  std::vector<UniqueFd> fds;
  bool lacks_fds = false;  // this process has reached its limit on descriptors
};
// Does not block. Absent if no message is waiting, or the peer has closed.
std::optional<Message> receive_message(int socket);

// False if the deadline passes first.
bool await_readable(const std::vector<int>& fds, Deadline deadline);

}  // namespace drun::worker::unix_socket
