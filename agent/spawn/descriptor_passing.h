// edge. Passes descriptors to another process in a message over a socket (SCM_RIGHTS).
//
// A copy made by dup(2) has to be closed again, and closing a file flushes it: on a network file
// system that hangs, close(2) and dup3(2) wait. A descriptor in a message is not a copy of that
// kind; closing the socket does not wait for a file system.
//
// Errors: as errno.
// Thread: any.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

// Connected sockets that keep the bounds of messages, close-on-exec.
struct SocketPair {
  UniqueFd ours;  // non-blocking
  UniqueFd theirs;
};
std::optional<SocketPair> socket_pair();

inline constexpr std::size_t kMostPassed = 5;

// Sends `text`, which must not be empty, with at most kMostPassed descriptors. Does not wait.
// Returns 0 or an errno.
int send_descriptors(int socket, std::string_view text, std::span<const int> fds);

// Receives the next message's three descriptors, close-on-exec. Waits for it. Makes one raw system
// call, so that a child between clone and exec can use it (raw_syscall.h). Returns 0 or an errno.
int receive_descriptors(int socket, std::array<int, 3>& fds);

}  // namespace drun::agent
