#include "worker_lib/tools/probe/visits.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "drun/backend.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/net/asio.h"
#include "worker_lib/base/threads.h"

namespace drun::probe {
namespace {

using asio::ip::tcp;
using Steady = std::chrono::steady_clock;
using Wall = std::chrono::system_clock;

constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kAskBytes = kTokenBytes + 4;
constexpr std::size_t kAnswerBytes = 8;
constexpr std::uint32_t kMostPayloadBytes = 256 << 10;

// --- Visits

constexpr int kSmallMessages = 8;
// One full packet of the usual size, and many: virtual networks may carry these and drop the one.
constexpr std::uint32_t kPacketBytes = 1400;
constexpr std::uint32_t kLargeBytes = kMostPayloadBytes;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// Kept by its handlers; `visit` outlives the loop.
class Traveler : public std::enable_shared_from_this<Traveler> {
 public:
  Traveler(asio::io_context& io, const Destination& to, const std::string& token, Visit& visit)
      : socket_(io), timer_(io), to_(to), token_(token), visit_(visit) {
    visit_.to = to.node;
    visit_.reason = "no answer in " + std::to_string(kVisitAtMost.count()) + " s";
  }

  void start() {
    error_code ec;
    const asio::ip::address address = asio::ip::make_address(to_.address, ec);
    if (ec) {
      visit_.reason = "\"" + to_.address + "\" is no address";
      return;
    }
    timer_.expires_after(kVisitAtMost);
    timer_.async_wait([self = shared_from_this()](const error_code& over) {
      if (!over) self->close();
    });
    socket_.async_connect(tcp::endpoint(address, to_.port),
                          [self = shared_from_this()](const error_code& failed) {
                            if (failed) return self->fail(failed);
                            error_code ignored;
                            self->socket_.set_option(tcp::no_delay(true), ignored);
                            self->ask(0);
                          });
  }

 private:
  void ask(std::uint32_t payload_bytes) {
    message_ = token_;
    ByteWriter(message_).u32(payload_bytes);
    message_.append(payload_bytes, 'x');
    answer_.resize(kAnswerBytes + payload_bytes);
    asked_ = Steady::now();
    asked_at_ = Wall::now();
    asio::async_write(socket_, asio::buffer(message_),
                      [self = shared_from_this()](const error_code& ec, std::size_t) {
                        if (ec) self->fail(ec);
                      });
    asio::async_read(socket_, asio::buffer(answer_),
                     [self = shared_from_this()](const error_code& ec, std::size_t) {
                       if (ec) return self->fail(ec);
                       self->answered();
                     });
  }

  void answered() {
    if (visit_.has_arrived && !std::exchange(has_carried_packet_, true)) return ask(kLargeBytes);
    if (visit_.has_arrived) {
      visit_.large_ones_too = true;
      visit_.reason.clear();
      return close();
    }
    const auto round_trip = Steady::now() - asked_;
    if (round_trip < shortest_) {
      shortest_ = round_trip;
      ByteReader reader(std::string_view(answer_.data(), kAnswerBytes));
      const auto theirs = std::chrono::nanoseconds(static_cast<std::int64_t>(reader.u64()));
      const auto middle = asked_at_.time_since_epoch() + round_trip / 2;
      visit_.clock_ahead_s = seconds(middle) - seconds(theirs);
      visit_.clock_bound_s = seconds(round_trip) / 2;
      visit_.round_trip_s = seconds(round_trip);
    }
    if (++answers_ < kSmallMessages) return ask(0);
    visit_.has_arrived = true;
    visit_.reason = "small messages arrive, large ones do not";
    ask(kPacketBytes);
  }

  void fail(const error_code& ec) {
    if (ec == asio::error::operation_aborted) return;
    if (!visit_.has_arrived) visit_.reason = system_message(ec.value());
    if (ec == asio::error::eof) visit_.reason = "it closed the connection";
    close();
  }
  void close() {
    error_code ec;
    socket_.close(ec);
    timer_.cancel();
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  const Destination& to_;
  const std::string& token_;
  Visit& visit_;
  std::string message_;
  std::vector<char> answer_;
  Steady::time_point asked_;
  Wall::time_point asked_at_;
  std::chrono::nanoseconds shortest_ = std::chrono::nanoseconds::max();
  int answers_ = 0;
  bool has_carried_packet_ = false;
};

// --- The host

constexpr std::size_t kMostVisitors = 256;
constexpr std::chrono::seconds kVisitorAtMost{10};

error_code listen_on(tcp::acceptor& acceptor, const tcp& protocol) {
  error_code ec;
  acceptor.open(protocol, ec);
  const int both = 0;  // IPv4 by the same socket
  if (!ec && protocol == tcp::v6())
    setsockopt(acceptor.native_handle(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both));
  if (!ec) acceptor.bind(tcp::endpoint(protocol, 0), ec);
  if (!ec) acceptor.listen(static_cast<int>(kMostVisitors), ec);
  if (ec) {
    error_code ignored;
    acceptor.close(ignored);
  }
  return ec;
}

// One connection; kept by its handlers.
class Visitor : public std::enable_shared_from_this<Visitor> {
 public:
  Visitor(tcp::socket socket, const std::string& token)
      : socket_(std::move(socket)), timer_(socket_.get_executor()), token_(token) {}

  void start() {
    error_code ec;
    socket_.set_option(tcp::no_delay(true), ec);
    timer_.expires_after(kVisitorAtMost);
    timer_.async_wait([self = shared_from_this()](const error_code& over) {
      if (!over) self->close();
    });
    read_question();
  }
  void close() {
    error_code ec;
    socket_.close(ec);
    timer_.cancel();
  }

 private:
  void read_question() {
    asio::async_read(socket_, asio::buffer(question_),
                     [self = shared_from_this()](const error_code& ec, std::size_t) {
                       if (ec) return self->close();
                       self->read_payload();
                     });
  }
  void read_payload() {
    const std::string_view question(question_.data(), question_.size());
    ByteReader reader(question.substr(kTokenBytes));
    const std::uint32_t size = reader.u32();
    if (question.substr(0, kTokenBytes) != token_ || size > kMostPayloadBytes) return close();
    payload_.resize(size);
    asio::async_read(socket_, asio::buffer(payload_),
                     [self = shared_from_this()](const error_code& ec, std::size_t) {
                       if (ec) return self->close();
                       self->answer();
                     });
  }
  void answer() {
    answer_.clear();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    ByteWriter(answer_).u64(static_cast<std::uint64_t>(time));
    answer_.append(payload_.begin(), payload_.end());
    asio::async_write(socket_, asio::buffer(answer_),
                      [self = shared_from_this()](const error_code& ec, std::size_t) {
                        if (ec) return self->close();
                        self->read_question();
                      });
  }
  tcp::socket socket_;
  asio::steady_timer timer_;
  const std::string& token_;
  std::array<char, kAskBytes> question_{};
  std::vector<char> payload_;
  std::string answer_;
};

class Server final : public Host {
 public:
  explicit Server(std::string token) : token_(std::move(token)) {}
  ~Server() override {
    asio::post(io_, [this] { close(); });  // leaves io_ with nothing to wait for
    if (thread_.joinable()) thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Result<void> start() {
    error_code ec = listen_on(acceptor_, tcp::v6());
    if (ec) ec = listen_on(acceptor_, tcp::v4());  // a kernel without IPv6
    if (ec) return system_error("listen for the other nodes", ec.value());
    accept();
    try {
      thread_ = worker::start_thread([this] { io_.run(); });
    } catch (const BackendFailure& failure) {
      return Error{ErrorCode::System, failure.what()};
    }
    return {};
  }
  std::uint16_t port() const override {
    error_code ec;
    return acceptor_.local_endpoint(ec).port();
  }

 private:
  void accept() {
    acceptor_.async_accept([this](const error_code& ec, tcp::socket socket) {
      if (ec == asio::error::operation_aborted) return;
      if (!acceptor_.is_open()) return;
      if (!ec) admit(std::move(socket));
      accept();
    });
  }
  void admit(tcp::socket socket) {
    std::erase_if(visitors_, [](const auto& visitor) { return visitor.expired(); });
    if (visitors_.size() >= kMostVisitors) return;
    const auto visitor = std::make_shared<Visitor>(std::move(socket), token_);
    visitors_.push_back(visitor);
    visitor->start();
  }
  void close() {
    error_code ec;
    acceptor_.close(ec);
    for (const auto& each : visitors_) {
      if (const auto visitor = each.lock()) visitor->close();
    }
  }

  const std::string token_;
  std::vector<std::weak_ptr<Visitor>> visitors_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  std::thread thread_;
};

}  // namespace

std::string new_token() {
  std::random_device random;
  std::string token;
  while (token.size() < kTokenBytes) token += static_cast<char>('a' + random() % 26);
  return token;
}

std::vector<Visit> visit_all(const std::vector<Destination>& destinations,
                             const std::string& token) {
  constexpr std::size_t kAtOnce = 256;  // descriptors
  std::vector<Visit> visits(destinations.size());
  for (std::size_t begin = 0; begin < destinations.size(); begin += kAtOnce) {
    asio::io_context io(1);
    for (std::size_t i = begin; i < std::min(begin + kAtOnce, destinations.size()); ++i)
      std::make_shared<Traveler>(io, destinations[i], token, visits[i])->start();
    io.run();
  }
  return visits;
}

Result<std::unique_ptr<Host>> Host::open(std::string token) {
  auto server = std::make_unique<Server>(std::move(token));
  if (Result<void> started = server->start(); !started) return started.error();
  return Result<std::unique_ptr<Host>>(std::move(server));
}

}  // namespace drun::probe
