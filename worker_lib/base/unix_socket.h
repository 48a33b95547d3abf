// edge. Unix sockets without a place in the file system: short messages, descriptors with them, and
// the identity of the peer.
//
// Errors:  where a descriptor or an optional is returned, nothing means: the system says no, and
//          errno why.
// Thread:  any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::worker::shm {

// An unguessable name, in this network namespace.
std::string random_name();

// Does not block in accept.
UniqueFd listen_at(const std::string& name, int backlog);
UniqueFd accept_from(int listener);
UniqueFd connect_to(const std::string& name, Deadline deadline);

struct Peer {
  pid_t pid = 0;  // 0: not visible from here
  uid_t uid = 0;
};
std::optional<Peer> peer_of(int socket);
// Becomes readable when that process ends. Empty where the system has no such thing.
UniqueFd watch_process(pid_t pid);

// One message with up to two descriptors. False: the other side has gone, or does not read.
bool send_message(int socket, std::string_view text, const std::vector<int>& fds = {});

struct Message {
  std::string text;
  std::vector<UniqueFd> fds;
};
// Does not block. Nothing: no connection is waiting, or the peer has closed.
std::optional<Message> receive_message(int socket);

// False: the deadline passed first.
bool await_readable(const std::vector<int>& fds, Deadline deadline);

}  // namespace drun::worker::shm
