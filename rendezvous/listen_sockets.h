// edge. Opens the sockets that a ListenSpec asks for: all on one port.
// Owner:   the caller; each socket is closed with its OwnedFd.   Thread: any.
// Errors:  System (port taken, not allowed), Usage (a loopback_host that is none), naming port and
//          remedy.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "rendezvous/listener.h"
#include "rendezvous/result.h"

namespace drun::rendezvous {

class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Listening, non-blocking; what it accepts has TCP_NODELAY.
struct ListenSocket {
  OwnedFd fd;
  bool is_v6 = false;
};
struct ListenSockets {
  std::vector<ListenSocket> sockets;
  std::uint16_t port = 0;
};

Result<ListenSockets> open_listen_sockets(const ListenSpec& spec);

}  // namespace drun::rendezvous
