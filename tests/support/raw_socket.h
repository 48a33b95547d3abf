// A plain TCP connection that sends arbitrary bytes, and servers that misbehave.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace drun {

class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {}
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RawSocket() {
    if (fd_ >= 0) close(fd_);
  }

  // Not open (`is_open`) if nothing listens there.
  static RawSocket connect_to(std::uint16_t port, const char* host = "127.0.0.1") {
    RawSocket one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = at(port, host);
    if (connect(one.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return RawSocket(-1);
    }
    return one;
  }
  static RawSocket listening(std::uint16_t port = 0) { return listening_at("127.0.0.1", port); }
  static RawSocket listening_at(const char* host, std::uint16_t port) {
    RawSocket one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(one.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const sockaddr_in address = at(port, host);
    if (bind(one.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(one.fd_, 64) != 0) {
      return RawSocket(-1);
    }
    return one;
  }

  RawSocket accept_one() const { return RawSocket(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)); }
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  std::uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
  }

  bool say(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  // Returns `count` bytes, or fewer if the peer closed or 20 s passed.
  std::string hear(std::size_t count) const {
    std::string bytes(count, '\0');
    std::size_t got = 0;
    while (got < count && has_something(20'000)) {
      const ssize_t n = recv(fd_, bytes.data() + got, count - got, 0);
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    bytes.resize(got);
    return bytes;
  }
  // Whether the peer closes within 20 s without sending another byte.
  bool hears_end() const {
    char byte = 0;
    return has_something(20'000) && recv(fd_, &byte, 1, 0) <= 0;
  }
  bool has_something(int within_ms) const {
    pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&one, 1, within_ms) > 0;
  }

 private:
  static sockaddr_in at(std::uint16_t port, const char* host) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
  }

  int fd_;
};

}  // namespace drun
