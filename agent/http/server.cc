#include "agent/http/server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "agent/http/request.h"

namespace drun::agent::web {
namespace {

using asio::ip::tcp;

constexpr std::size_t kMostAtOnce = 32;
constexpr std::size_t kReadBytes = 2048;
constexpr std::chrono::seconds kTimeForOne{5};

}  // namespace

// One request and its answer.
struct Visit {
  explicit Visit(tcp::socket accepted)
      : socket(std::move(accepted)), deadline(socket.get_executor()) {}
  tcp::socket socket;
  asio::steady_timer deadline;
  std::array<char, kReadBytes> bytes{};
  RequestReader request;
  std::string response{};
};

class Server::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, Ask ask) : acceptor_(io), later_(io), ask_(std::move(ask)) {}

  void open(const Endpoint& where) {
    tcp::endpoint at(asio::ip::make_address(where.host), where.port);
    const bool is_any = at.address() == asio::ip::address_v6::any();
    error_code no_v6;
    acceptor_.open(at.protocol(), no_v6);
    if (no_v6 && is_any) {
      at = tcp::endpoint(tcp::v4(), where.port);
      acceptor_.open(at.protocol());
    } else if (no_v6) {
      throw boost::system::system_error(no_v6);
    }
    close_on_exec(acceptor_);
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    const int is_v6_alone = is_any ? 0 : 1;
    if (at.protocol() == tcp::v6())
      setsockopt(acceptor_.native_handle(), IPPROTO_IPV6, IPV6_V6ONLY, &is_v6_alone, sizeof(int));
    acceptor_.bind(at);
    acceptor_.listen();
    port = acceptor_.local_endpoint().port();
    accept();
  }

  void stop() {
    error_code ignored;
    acceptor_.close(ignored);
    later_.cancel();
    while (!visits_.empty()) end(*visits_.begin());
  }

  std::uint16_t port = 0;

 private:
  using VisitPtr = std::shared_ptr<Visit>;

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](const error_code& ec, tcp::socket socket) {
      if (!self->acceptor_.is_open()) return;
      if (ec) return self->accept_later();
      close_on_exec(socket);
      if (self->visits_.size() < kMostAtOnce) self->begin(std::move(socket));
      self->accept();
    });
  }

  // No descriptors left, say: at once it would be the same again.
  void accept_later() {
    later_.expires_after(std::chrono::seconds(1));
    later_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (!ec && self->acceptor_.is_open()) self->accept();
    });
  }

  void begin(tcp::socket socket) {
    const auto visit = std::make_shared<Visit>(std::move(socket));
    visits_.insert(visit);
    visit->deadline.expires_after(kTimeForOne);
    visit->deadline.async_wait([self = shared_from_this(), visit](const error_code& ec) {
      if (!ec) self->end(visit);
    });
    read(visit);
  }

  void read(const VisitPtr& visit) {
    visit->socket.async_read_some(
        asio::buffer(visit->bytes),
        [self = shared_from_this(), visit](const error_code& ec, std::size_t count) {
          if (ec || !visit->socket.is_open()) return self->end(visit);
          self->take(visit, {visit->bytes.data(), count});
        });
  }

  void take(const VisitPtr& visit, std::string_view bytes) {
    switch (visit->request.take(bytes)) {
      case RequestReader::State::Incomplete:
        return read(visit);
      case RequestReader::State::Malformed:
        return end(visit);
      case RequestReader::State::Complete:
        return answer(visit);
    }
  }

  void answer(const VisitPtr& visit) {
    const RequestReader& request = visit->request;
    visit->response = request.response(ask_(request.method(), request.target()));
    asio::async_write(visit->socket, asio::buffer(visit->response),
                      [self = shared_from_this(), visit](const error_code&, std::size_t) {
                        error_code ignored;
                        visit->socket.shutdown(tcp::socket::shutdown_send, ignored);
                        self->end(visit);
                      });
  }

  void end(VisitPtr visit) {
    visits_.erase(visit);
    error_code ignored;
    visit->socket.close(ignored);
    visit->deadline.cancel();
  }

  tcp::acceptor acceptor_;
  asio::steady_timer later_;
  Ask ask_;
  std::set<VisitPtr> visits_;
};

Result<std::unique_ptr<Server>> Server::open(asio::io_context& io, const Endpoint& where, Ask ask) {
  auto impl = std::make_shared<Impl>(io, std::move(ask));
  try {
    impl->open(where);
  } catch (const boost::system::system_error& error) {
    impl->stop();
    return Error{ErrorCode::System, "cannot listen on port " + std::to_string(where.port) + " of " +
                                        where.host +
                                        " for --metrics-port: " + error.code().message() +
                                        "; give another one, or 0 for any free one"};
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() { impl_->stop(); }

std::uint16_t Server::port() const { return impl_->port; }

}  // namespace drun::agent::web
