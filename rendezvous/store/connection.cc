#include "rendezvous/store/connection.h"

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
#include <random>
#include <span>
#include <string>
#include <utility>

#include "rendezvous/base/random_instance.h"
#include "rendezvous/store/wire.h"

namespace drun {
namespace {

using Time = StoreStream::Time;

constexpr std::size_t kBufferBytes = 16 * 1024;
// The limit for one address, so that an address that drops packets leaves time for the next one.
constexpr std::chrono::seconds kOneAddress{10};

Error closed(std::string_view reason) { return Error{ErrorCode::Closed, std::string(reason)}; }

Error unreachable(int error_number) {
  return Error{ErrorCode::Unreachable, system_message(error_number)};
}

// Rounded up: an early wake-up would cause a busy loop in the last millisecond.
int left_ms(Time deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, INT_MAX));
}

// Returns false if the deadline has passed.
bool wait_for(int fd, short events, Time deadline) {
  while (true) {
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int count = poll(&one, 1, left_ms(deadline));
    if (count > 0) return true;
    if (count == 0 && std::chrono::steady_clock::now() >= deadline) return false;
  }
}

// A client that retries a free port of its host may connect to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return false;
  return own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

// Returns a connected descriptor or the reason of the failure.
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

namespace {

using Clock = std::chrono::steady_clock;
using Time = StoreStream::Time;

// The possible greetings of a client, newest first. A server that does not know one closes at once.
enum class Greeting { ValidateAndPing, Validate, Legacy };
constexpr Greeting kAll[] = {Greeting::ValidateAndPing, Greeting::Validate, Greeting::Legacy};

// A legacy server reads VALIDATE as a SET whose key length is the magic number and the next four
// bytes. They must make the length so large that the allocation fails: the server then closes at
// once, instead of clearing gigabytes and waiting for a key. This nonce has that effect, and so
// have four CANCEL_WAITs. Other servers answer each of them with a 1, with or without a wait.
constexpr std::uint32_t kNonce = 0xFFFFFFFF;
constexpr int kCancels = 4;

// A server that is stopping also closes. After this many rounds, it is not a TCPStore.
constexpr int kMostRefusals = 3;

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{1000};

std::span<const Greeting> greetings(std::optional<Dialect> dialect) {
  const std::span<const Greeting> all(kAll);
  if (!dialect) return all;
  return *dialect == Dialect::Current ? all.subspan(1, 1) : all.subspan(2, 1);
}

std::string operation(Opcode opcode, Dialect dialect) {
  return {static_cast<char>(to_byte(opcode, dialect).value())};
}

// The request and its only valid answer.
std::pair<std::string, std::string> exchange_of(Greeting greeting) {
  std::string request;
  std::string answer;
  if (greeting != Greeting::Legacy) request.append(kValidate);
  switch (greeting) {
    case Greeting::ValidateAndPing:
      request += operation(Opcode::Ping, Dialect::Current);
      put_u32(request, kNonce);
      put_u32(answer, kNonce);
      break;
    case Greeting::Validate:
      for (int i = 0; i < kCancels; ++i) {
        request += operation(Opcode::CancelWait, Dialect::Current);
        answer.push_back('\1');
      }
      break;
    case Greeting::Legacy:
      request += operation(Opcode::Check, Dialect::Legacy);
      put_u64(request, 0);  // of no keys
      answer.push_back('\0');
      break;
  }
  return {request, answer};
}

Result<void> greet(StoreStream& stream, Greeting greeting, Time deadline) {
  const auto [request, expected] = exchange_of(greeting);
  const Result<void> written = stream.write(request, deadline);
  if (!written) return written;
  std::string answer(expected.size(), '\0');
  const Result<void> got = stream.read(answer.data(), answer.size(), deadline);
  if (!got) return got;
  if (answer == expected) return {};
  return Error{ErrorCode::Refused,
               "what listens there is not a TCPStore; is it another program's port?"};
}

// Tries each greeting once. Closed: the server knows none of them.
Result<StoreHandshake> try_greetings(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                     Time deadline) {
  Error error;
  for (const Greeting greeting : greetings(dialect)) {
    Result<StoreStream> stream = StoreStream::open(endpoint, deadline);
    if (!stream) return stream.error();
    const Result<void> result = greet(*stream, greeting, deadline);
    if (result) {
      const bool is_legacy = greeting == Greeting::Legacy;
      return StoreHandshake{.stream = *std::move(stream),
                            .dialect = is_legacy ? Dialect::Legacy : Dialect::Current};
    }
    error = result.error();
    if (error.code != ErrorCode::Closed) return error;
  }
  return error;
}

}  // namespace

Result<StoreHandshake> shake_hands(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                   Time deadline) {
  std::minstd_rand random{
      static_cast<std::minstd_rand::result_type>(rendezvous::random_instance())};
  std::uniform_real_distribution<double> jitter(0.5, 1.5);
  std::chrono::duration<double> pause = kFirstPause;
  const std::string whom = "cannot connect to the store at " + to_string(endpoint);
  int refusals = 0;
  while (true) {
    Result<StoreHandshake> result = try_greetings(endpoint, dialect, deadline);
    if (result) return result;
    Error error = result.error();
    if (error.code == ErrorCode::Timeout)
      error.message = "it accepts connections but does not answer";
    if (error.code == ErrorCode::Closed && ++refusals == kMostRefusals) {
      error = {ErrorCode::Refused, "it closes the connection at once (" + error.message +
                                       "); is it another program's port?"};
    }
    const Time next =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(pause * jitter(random));
    const bool may_retry = error.code == ErrorCode::Unreachable || error.code == ErrorCode::Closed;
    if (!may_retry || next >= deadline) {
      if (error.code == ErrorCode::Unreachable) error.message += "; does it run there?";
      return with_context(std::move(error), whom);
    }
    wait_until(next);
    pause = std::min<std::chrono::duration<double>>(pause * 1.5, kLongestPause);
  }
}

StoreStream::Time after(std::chrono::milliseconds timeout) {
  // Longer than any real timeout.
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() +
         std::clamp(timeout, std::chrono::milliseconds(0), kForever);
}

}  // namespace drun
