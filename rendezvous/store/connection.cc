#include "rendezvous/store/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "rendezvous/base/bytes.h"
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
// have four CANCEL_WAITs, each of which other servers answer with a 1, with or without a wait.
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

// The request and its only valid answer.
std::pair<std::string, std::string> exchange_of(Greeting greeting) {
  std::string request;
  std::string answer;
  bool is_known = true;
  if (greeting != Greeting::Legacy) request.append(kValidate);
  switch (greeting) {
    case Greeting::ValidateAndPing:
      is_known = encode(store::Ping{kNonce}, Dialect::Current, request);
      put_u32(answer, kNonce);
      break;
    case Greeting::Validate:
      for (int i = 0; i < kCancels; ++i) {
        is_known = encode(store::CancelWait{}, Dialect::Current, request);
        answer.push_back('\1');
      }
      break;
    case Greeting::Legacy:
      is_known = encode(store::Check{}, Dialect::Legacy, request);
      answer.push_back('\0');
      break;
  }
  static_cast<void>(is_known);  // all these operations exist in their dialects
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
               "what listens there is not a TCPStore; is it another program's "
               "port?"};
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

namespace {

// Larger answers are invalid.
constexpr std::uint64_t kMostAnswerBytes = std::uint64_t{1} << 32;
constexpr std::size_t kMostReadBytes = 1 << 20;
// The time limit for the answer to CANCEL_WAIT, which a working server sends at once.
constexpr std::chrono::seconds kCancelTime{10};

}  // namespace

StoreStream::Time after(std::chrono::milliseconds timeout) {
  // Longer than any real timeout.
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() +
         std::clamp(timeout, std::chrono::milliseconds(0), kForever);
}

StoreExchange& StoreExchange::begin(Opcode opcode, std::string_view subject, Milliseconds timeout) {
  opcode_ = opcode;
  subject_ = subject;
  timeout_ = timeout;
  deadline_ = after(timeout);
  request_.clear();
  if (const std::optional<std::uint8_t> byte = to_byte(opcode, dialect_)) {
    request_.push_back(static_cast<char>(*byte));
  }
  return *this;
}

StoreExchange& StoreExchange::key(std::string_view key) {
  put_u64(request_, key.size() + 1);
  request_.push_back('/');
  request_.append(key);
  return *this;
}

StoreExchange& StoreExchange::text(std::string_view value) {
  put_text(request_, value);
  return *this;
}

StoreExchange& StoreExchange::number(std::int64_t value) {
  put_u64(request_, static_cast<std::uint64_t>(value));
  return *this;
}

StoreExchange& StoreExchange::keys(std::span<const std::string> keys) {
  put_u64(request_, keys.size());
  for (const std::string& one : keys) key(one);
  return *this;
}

Result<void> StoreExchange::send() {
  if (!to_byte(opcode_, dialect_)) {
    return named({ErrorCode::Usage, "a server of the " + std::string(to_string(dialect_)) +
                                        " dialect has no such operation"});
  }
  if (const Result<void> open = reopen(); !open) return open;
  return checked(stream_->write(request_, deadline_));
}

Result<std::uint8_t> StoreExchange::read_byte() {
  char byte = 0;
  const Result<void> got = checked(stream_->read(&byte, 1, deadline_));
  if (!got) return got.error();
  return static_cast<std::uint8_t>(byte);
}

Result<std::int64_t> StoreExchange::read_number() {
  std::array<char, 8> bytes{};
  const Result<void> got = checked(stream_->read(bytes.data(), bytes.size(), deadline_));
  if (!got) return got.error();
  return ByteReader({bytes.data(), bytes.size()}).i64();
}

Result<std::int64_t> StoreExchange::ask_number() {
  const Result<void> sent = send();
  if (!sent) return sent.error();
  return read_number();
}

Error StoreExchange::timed_out() const { return named({ErrorCode::Timeout, "timed out"}); }

Error StoreExchange::nonsense(std::string_view what) {
  return broken({ErrorCode::Refused, "the answer makes no sense: " + std::string(what)});
}

Error StoreExchange::named(Error error) const {
  if (error.code == ErrorCode::Timeout) {
    error.message += " after " + std::to_string(timeout_.count()) + " ms";
  }
  return with_context(std::move(error), std::string(to_string(opcode_)) + " " + subject_ +
                                            " at the store " + to_string(endpoint_));
}

Error StoreExchange::broken(Error error) {
  stream_.reset();
  return named(std::move(error));
}

Result<void> StoreExchange::checked(Result<void> result) {
  if (result) return result;
  return broken(result.error());
}

Result<void> StoreExchange::reopen() {
  if (stream_) return {};
  if (!std::exchange(needs_reopening_, false)) {
    return named({ErrorCode::Closed, "an earlier error closed the connection"});
  }
  Result<StoreHandshake> again = shake_hands(endpoint_, dialect_, deadline_);
  if (!again) return named(again.error());
  stream_ = std::move(again->stream);
  return {};
}

Result<std::string> StoreExchange::read_text() {
  const Result<std::int64_t> length = read_number();
  if (!length) return length.error();
  std::uint64_t left_bytes = static_cast<std::uint64_t>(*length);
  if (left_bytes > kMostAnswerBytes) return nonsense(std::to_string(left_bytes) + " bytes");
  std::string text;
  // Reads in pieces, so that a wrong length allocates only one piece.
  while (left_bytes > 0) {
    const std::size_t count = std::min<std::uint64_t>(left_bytes, kMostReadBytes);
    const std::size_t old_size = text.size();
    text.resize(old_size + count);
    const Result<void> got = checked(stream_->read(text.data() + old_size, count, deadline_));
    if (!got) return got.error();
    left_bytes -= count;
  }
  return text;
}

Result<void> StoreExchange::send_and_wait() {
  const Result<void> sent = send();
  if (!sent) return sent;
  char byte = 0;
  const Result<void> got = stream_->read(&byte, 1, deadline_);
  if (!got && got.error().code == ErrorCode::Timeout) return cancel_wait();
  if (!got) return broken(got.error());
  return byte == 0 ? Result<void>() : Result<void>(nonsense("not the end of waiting"));
}

Result<void> StoreExchange::cancel_wait() {
  const Error late = timed_out();
  if (dialect_ == Dialect::Legacy) {
    // The wait cannot be canceled, and the answer may come at any time. Only a new connection is
    // free of it.
    stream_.reset();
    needs_reopening_ = true;
    return late;
  }
  deadline_ = after(kCancelTime);
  request_.clear();
  if (!encode(store::CancelWait{}, dialect_, request_)) return late;
  if (const Result<void> sent = checked(stream_->write(request_, deadline_)); !sent) return sent;
  const Result<std::uint8_t> first = read_byte();
  if (!first) return first.error();
  if (*first == 1) return late;
  // The answer was sent before the cancellation arrived; it counts as in time.
  const Result<std::uint8_t> second = read_byte();
  if (!second) return second.error();
  if (*first != 0 || *second != 1) return nonsense("not the end of waiting, nor of its canceling");
  return {};
}

}  // namespace drun
