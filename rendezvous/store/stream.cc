#include "rendezvous/store/stream.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

namespace drun {
namespace {

using Time = StoreStream::Time;

constexpr std::size_t kBufferBytes = 16 * 1024;
// So that an address that swallows packets does not eat the time of the next one.
constexpr std::chrono::seconds kOneAddress{10};

Error closed(std::string_view reason) { return Error{ErrorCode::Closed, std::string(reason)}; }

Error unreachable(int error_number) {
  return Error{ErrorCode::Unreachable, system_message(error_number)};
}

// Rounded up: waking a little early would make a busy loop of the last millisecond.
int left_ms(Time deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, INT_MAX));
}

// False: the deadline passed.
bool wait_for(int fd, short events, Time deadline) {
  while (true) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int count = poll(&one, 1, left_ms(deadline));
    if (count > 0) return true;
    if (count == 0 && std::chrono::steady_clock::now() >= deadline) return false;
  }
}

// A client that keeps trying a free port of its own host may at last be connected to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return false;
  return own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

// A connected descriptor, or why not.
Result<UniqueFd> connect_to(const addrinfo& address, Time deadline) {
  UniqueFd fd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd) return unreachable(errno);
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return unreachable(errno);
    if (!wait_for(fd.get(), POLLOUT, deadline)) return unreachable(ETIMEDOUT);
    int error_number = 0;
    socklen_t size = sizeof(error_number);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) return unreachable(error_number);
  }
  if (is_connected_to_itself(fd.get())) return unreachable(ECONNREFUSED);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

}  // namespace

Result<StoreStream> StoreStream::open(const Endpoint& endpoint, Time deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int failure = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (failure != 0) {
    return Error{ErrorCode::Unreachable,
                 "the name does not resolve: " + std::string(gai_strerror(failure))};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  Error error = unreachable(EADDRNOTAVAIL);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const Time one = std::min(deadline, std::chrono::steady_clock::now() + kOneAddress);
    Result<UniqueFd> fd = connect_to(*at, one);
    if (fd) return StoreStream(*std::move(fd));
    error = fd.error();
  }
  return error;
}

StoreStream::StoreStream(UniqueFd fd) : fd_(std::move(fd)), buffer_(kBufferBytes) {}

Result<void> StoreStream::write(std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd_.get(), POLLOUT, deadline)) return Error{ErrorCode::Timeout, "timed out"};
    } else if (errno != EINTR) {
      return closed(system_message(errno));
    }
  }
  return {};
}

Result<void> StoreStream::read(char* to, std::size_t size_bytes, Time deadline) {
  while (size_bytes > 0) {
    if (taken_ < filled_) {
      const std::size_t count = std::min(size_bytes, filled_ - taken_);
      std::memcpy(to, buffer_.data() + taken_, count);
      taken_ += count;
      to += count;
      size_bytes -= count;
    } else if (size_bytes >= buffer_.size()) {
      const Result<std::size_t> count = receive(to, size_bytes, deadline);
      if (!count) return count.error();
      to += *count;
      size_bytes -= *count;
    } else {
      const Result<std::size_t> count = receive(buffer_.data(), buffer_.size(), deadline);
      if (!count) return count.error();
      taken_ = 0;
      filled_ = *count;
    }
  }
  return {};
}

Result<std::size_t> StoreStream::receive(char* to, std::size_t size_bytes, Time deadline) {
  while (true) {
    const ssize_t count = recv(fd_.get(), to, size_bytes, 0);
    if (count > 0) return static_cast<std::size_t>(count);
    if (count == 0) return closed("the server closed the connection");
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd_.get(), POLLIN, deadline)) return Error{ErrorCode::Timeout, "timed out"};
    } else if (errno != EINTR) {
      return closed(system_message(errno));
    }
  }
}

void wait_until(Time time) {
  while (std::chrono::steady_clock::now() < time) poll(nullptr, 0, left_ms(time));
}

}  // namespace drun
