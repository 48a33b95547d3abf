#include "agent/http/server.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace drun::agent::web {
namespace {

namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr std::size_t kMostAtOnce = 32;
constexpr std::size_t kMostRequestBytes = std::size_t{8} << 10;
constexpr std::chrono::seconds kTimeForOne{5};

std::string_view plain(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// One request and its answer.
struct Visit {
  explicit Visit(tcp::socket accepted)
      : socket(std::move(accepted)), deadline(socket.get_executor()) {
    request.header_limit(static_cast<std::uint32_t>(kMostRequestBytes));
    request.body_limit(0);
  }
  tcp::socket socket;
  asio::steady_timer deadline;
  boost::beast::flat_buffer received{kMostRequestBytes};
  http::request_parser<http::empty_body> request;
  http::response<http::string_body> response;
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

  // At once it would fail again, for example without free descriptors.
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
    http::async_read_header(
        visit->socket, visit->received, visit->request,
        [self = shared_from_this(), visit](const error_code& ec, std::size_t /*bytes*/) {
          ec || !visit->socket.is_open() ? self->end(visit) : self->answer(visit);
        });
  }

  // Bytes after the head are ignored, but a request that announces a body is not answered.
  void answer(const VisitPtr& visit) {
    if (visit->request.chunked() || visit->request.content_length().value_or(0) > 0)
      return end(visit);
    const auto& request = visit->request.get();
    const Answer answer = ask_(plain(request.method_string()), plain(request.target()));
    auto& response = visit->response;
    response.version(request.version());
    response.result(answer.code);
    response.set(http::field::content_type, answer.type);
    response.set(http::field::cache_control, "no-store");
    response.keep_alive(false);
    response.content_length(answer.body.size());
    if (request.method() != http::verb::head) response.body() = answer.body;
    http::async_write(visit->socket, response,
                      [self = shared_from_this(), visit](const error_code&, std::size_t /*bytes*/) {
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
