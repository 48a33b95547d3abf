#include "worker_lib/tools/probe/host.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "drun/backend.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/net/asio.h"
#include "worker_lib/base/threads.h"
#include "worker_lib/tools/probe/visits.h"

namespace drun::probe {
namespace {

using asio::ip::tcp;

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

}  // namespace

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

class Host::Impl {
 public:
  explicit Impl(std::string token) : token_(std::move(token)) {}
  ~Impl() {
    asio::post(io_, [this] { close(); });  // leaves io_ with nothing to wait for
    if (thread_.joinable()) thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Result<void> open() {
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
  std::uint16_t port() const {
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

Result<std::unique_ptr<Host>> Host::open(std::string token) {
  auto impl = std::make_unique<Impl>(std::move(token));
  if (Result<void> opened = impl->open(); !opened) return opened.error();
  return std::unique_ptr<Host>(new Host(std::move(impl)));
}

Host::Host(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Host::~Host() = default;
std::uint16_t Host::port() const { return impl_->port(); }

}  // namespace drun::probe
