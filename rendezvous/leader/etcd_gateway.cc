#include "rendezvous/leader/etcd_gateway.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/ssl.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <cassert>
#include <optional>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/leader/etcd_calls.h"
#include "rendezvous/net/connector.h"
#include "rendezvous/protocol/membership_text.h"
#include "rendezvous/tls/openssl_library.h"

namespace drun::rendezvous::etcd {
namespace {

namespace http = boost::beast::http;
namespace ssl = asio::ssl;
using asio::ip::tcp;

constexpr std::uint32_t kMostHeadBytes = 16384;

std::string words_of(const error_code& ec) {
  return ec.category() == boost::system::system_category() ? system_message(ec.value())
                                                           : ec.message();
}

}  // namespace

struct HttpTls::Parts {
  ssl::context context{ssl::context::tls_client};
};

HttpTls::HttpTls(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
HttpTls::~HttpTls() = default;

Result<std::shared_ptr<HttpTls>> HttpTls::make(const CertificateFiles& files) {
  if (Result<void> loaded = load_openssl(); !loaded) return loaded.error();
  try {
    auto parts = std::make_unique<Parts>();
    ssl::context& context = parts->context;
    const auto unusable = [](const std::string& key, const std::string& file,
                             const error_code& ec) {
      return Error{ErrorCode::Usage, "--rdzv-conf " + key + "=" + file + ": " + ec.message() +
                                         "; it is to be a PEM file that this agent can read"};
    };
    error_code ec;
    context.set_verify_mode(ssl::verify_peer);
    if (files.authorities.empty())
      context.set_default_verify_paths(ec);
    else
      context.load_verify_file(files.authorities, ec);
    if (ec) return unusable("cacert", files.authorities, ec);
    if (!files.certificate.empty()) context.use_certificate_chain_file(files.certificate, ec);
    if (ec) return unusable("cert", files.certificate, ec);
    if (!files.key.empty()) context.use_private_key_file(files.key, ssl::context::pem, ec);
    if (ec) return unusable("key", files.key, ec);
    return std::shared_ptr<HttpTls>(new HttpTls(std::move(parts)));
  } catch (const std::exception& failure) {
    return Error{ErrorCode::System, std::string("cannot use OpenSSL: ") + failure.what()};
  }
}

struct Gateway::HttpAnswer {
  int status = 0;
  std::string body{};
};

// An HTTP connection to one of etcd's endpoints and its current call, over TCP or TLS.
//
// Limits:  the size of an answer's head and body; `limit` is the time for a whole call, with lookup
//          and handshake.
// Errors:  Unreachable, Timeout; Refused: the server does not use HTTP, or its certificate is
//          wrong. Each error closes the connection. HTTP status codes are not errors. No throws.
class Gateway::Connection final : public std::enable_shared_from_this<Connection> {
 public:
  using OnData = std::function<void(std::string_view)>;
  using Done = std::function<void(Result<HttpAnswer>)>;

  Connection(asio::io_context& io, Endpoint server, std::shared_ptr<HttpTls> tls)
      : server_(std::move(server)), tls_(std::move(tls)), connector_(io), socket_(io), timer_(io) {}

  const Endpoint& server() const { return server_; }
  bool is_open() const { return socket_.is_open(); }

  // Calls `on_done` once, from the loop, unless `close` is called first. Not during another call.
  // `on_data`: for an answer without an end, such as a watch, gets its bytes as they arrive, and
  // `limit` is for the head of the answer only. Then `on_done` gets the reason of the end, or the
  // whole answer if its status is not 200. Both may call `close`. Null for other answers.
  void post(Request request, std::chrono::milliseconds limit, OnData on_data, Done on_done) {
    assert(!on_done_);
    on_data_ = std::move(on_data);
    on_done_ = std::move(on_done);
    request_ = {};
    request_.method(http::verb::post);
    request_.version(11);
    request_.target(request.path);
    request_.set(http::field::host, to_string(server_));
    request_.set(http::field::content_type, "application/json");
    // With this header, an etcd member that has lost its cluster ends a watch.
    if (on_data_) request_.set("Grpc-Metadata-hasleader", "true");
    request_.body() = std::move(request.body);
    request_.prepare_payload();
    timer_.expires_after(limit);
    timer_.async_wait(
        [self = shared_from_this(), call = ++last_call_, limit](const error_code& ec) {
          if (!ec && call == self->last_call_)
            self->fail(ErrorCode::Timeout, "has not answered within " + duration_text(limit));
        });
    if (socket_.is_open()) return write();
    connector_.start(server_, Connector::OwnAddresses::Connect,
                     [self = shared_from_this()](Result<tcp::socket> socket) {
                       self->connected(std::move(socket));
                     });
  }

  void close() {
    on_done_ = nullptr;
    on_data_ = nullptr;
    hang_up();
  }

 private:
  // Calls `action` with the plain socket or the TLS stream.
  template <typename Action>
  void on_stream(Action action) {
    if (stream_)
      action(*stream_);
    else
      action(socket_);
  }

  void connected(Result<tcp::socket> socket) {
    if (!on_done_) return;
    if (!socket) return fail(socket.error().code, socket.error().message);
    socket_ = *std::move(socket);
    error_code ec;
    socket_.set_option(tcp::no_delay(true), ec);
    if (on_data_) detect_dead_peer();
    if (!tls_) return write();
    stream_.emplace(socket_, tls_->parts_->context);
    stream_->set_verify_callback(ssl::host_name_verification(server_.host), ec);
    asio::ip::make_address(server_.host, ec);
    const bool is_name = static_cast<bool>(ec);
    if (is_name) SSL_set_tlsext_host_name(stream_->native_handle(), server_.host.c_str());
    stream_->async_handshake(
        ssl::stream_base::client,
        [self = shared_from_this()](const error_code& failure) { self->shaken(failure); });
  }

  // A stream may send nothing for minutes. With these options, the kernel detects a lost server
  // within half a minute (tcp(7)).
  void detect_dead_peer() {
    const auto set = [this](int level, int name, int value) {
      setsockopt(socket_.native_handle(), level, name, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  }

  void shaken(const error_code& ec) {
    if (!on_done_) return;
    if (ec) return fail(ErrorCode::Refused, "TLS: " + words_of(ec));
    write();
  }

  void write() {
    on_stream([this](auto& stream) {
      http::async_write(
          stream, request_,
          [self = shared_from_this()](const error_code& ec, std::size_t) { self->written(ec); });
    });
  }

  void written(const error_code& ec) {
    if (!on_done_) return;
    if (ec) return fail(ErrorCode::Unreachable, words_of(ec));
    parser_.emplace();
    parser_->header_limit(kMostHeadBytes);
    parser_->body_limit(kMostAnswerBytes);
    on_stream([this](auto& stream) {
      http::async_read_header(stream, buffer_, *parser_,
                              [self = shared_from_this()](const error_code& failure, std::size_t) {
                                self->headed(failure);
                              });
    });
  }

  // Beast 1.74 allocates the length that a response announces, and ignores the limit.
  void headed(const error_code& ec) {
    if (!on_done_ || ec) return answered(ec);
    if (parser_->content_length().value_or(0) > kMostAnswerBytes)
      return answered(http::error::body_limit);
    if (on_data_ && parser_->get().result() == http::status::ok) {
      timer_.cancel();
      ++last_call_;  // the timer's handler may already be queued
      parser_->body_limit(boost::none);
      return read_more();
    }
    on_stream([this](auto& stream) {
      http::async_read(stream, buffer_, *parser_,
                       [self = shared_from_this()](const error_code& failure, std::size_t) {
                         self->answered(failure);
                       });
    });
  }

  void read_more() {
    on_stream([this](auto& stream) {
      http::async_read_some(stream, buffer_, *parser_,
                            [self = shared_from_this()](const error_code& failure, std::size_t) {
                              self->streamed(failure);
                            });
    });
  }

  // Empties the parser's body after each read, so that it never holds more than one.
  void streamed(const error_code& ec) {
    if (!on_done_) return;
    const std::string bytes = std::exchange(parser_->get().body(), {});
    if (!bytes.empty()) {
      const OnData on_data = on_data_;
      on_data(bytes);
      if (!on_done_) return;
    }
    if (ec) return answered(ec);
    if (parser_->is_done()) return fail(ErrorCode::Unreachable, "ended its answer");
    read_more();
  }

  void answered(const error_code& ec) {
    if (!on_done_) return;
    if (ec == http::error::end_of_stream || ec == http::error::partial_message)
      return fail(ErrorCode::Unreachable, "closed the connection without an answer");
    if (ec && ec.category() == http::make_error_code(http::error::bad_version).category())
      return fail(ErrorCode::Refused, "does not speak HTTP as it should: " + ec.message());
    if (ec) return fail(ErrorCode::Unreachable, words_of(ec));
    timer_.cancel();
    auto answer = parser_->release();
    if (!answer.keep_alive()) hang_up();
    std::exchange(on_done_, nullptr)(
        HttpAnswer{static_cast<int>(answer.result_int()), std::move(answer.body())});
  }

  void fail(ErrorCode code, const std::string& reason) {
    if (!on_done_) return;
    on_data_ = nullptr;
    hang_up();
    std::exchange(on_done_, nullptr)(Error{code, to_string(server_) + ": " + reason});
  }

  void hang_up() {
    timer_.cancel();
    connector_.cancel();
    error_code ec;
    socket_.close(ec);
  }

  const Endpoint server_;
  const std::shared_ptr<HttpTls> tls_;
  Connector connector_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  std::optional<ssl::stream<tcp::socket&>> stream_;
  http::request<http::string_body> request_;
  std::optional<http::response_parser<http::string_body>> parser_;
  boost::beast::flat_buffer buffer_{kMostHeadBytes * 4};
  OnData on_data_;
  Done on_done_;
  std::uint64_t last_call_ = 0;
};

namespace {

// The time limit until etcd confirms a watch. After that it sends nothing until a change.
constexpr std::chrono::seconds kWatchAnswer{5};

}  // namespace

Gateway::Gateway(asio::io_context& io, std::vector<Endpoint> endpoints, Keys keys,
                 std::shared_ptr<HttpTls> tls)
    : io_(io), endpoints_(std::move(endpoints)), keys_(std::move(keys)), tls_(std::move(tls)) {
  assert(!endpoints_.empty());
}

Gateway::Connection& Gateway::open(ConnectionPtr& connection, std::size_t endpoint) {
  const Endpoint& server = endpoints_[endpoint];
  if (connection && (!connection->is_open() || connection->server() != server)) close(connection);
  if (!connection) connection = std::make_shared<Connection>(io_, server, tls_);
  return *connection;
}

void Gateway::close(ConnectionPtr& connection) {
  if (connection) connection->close();
  connection.reset();
}

void Gateway::ask(const Call& call, std::chrono::milliseconds limit, Done on_done) {
  if (std::exchange(is_asking_, true)) close(calls_);
  open(calls_, next_)
      .post(request_of(call, keys_), limit, nullptr,
            [this, call, on_done = std::move(on_done)](const Result<HttpAnswer>& answer) {
              is_asking_ = false;
              on_done(judge(call, answer));
            });
}

void Gateway::close() {
  is_asking_ = false;
  close(calls_);
  stop_watching();
}

void Gateway::watch(Revision from, OnMessage on_message) {
  stop_watching();
  on_message_ = std::move(on_message);
  open(watch_, watch_next_)
      .post(
          watch_request(from, keys_), kWatchAnswer,
          [this](std::string_view bytes) { on_watch_data(bytes); },
          [this](const Result<HttpAnswer>& ended) {
            end_watch(ended ? "HTTP status " + std::to_string(ended->status)
                            : ended.error().message);
          });
}

void Gateway::stop_watching() {
  on_message_ = nullptr;
  watch_line_.clear();
  close(watch_);
}

// Each line is a message. A handler may stop the watch or begin another one.
void Gateway::on_watch_data(std::string_view bytes) {
  watch_line_ += bytes;
  for (;;) {
    const std::size_t end = watch_line_.find('\n');
    if (end == watch_line_.npos) break;
    const std::string line = watch_line_.substr(0, end);
    watch_line_.erase(0, end + 1);
    const std::variant<WatchMessage, Failed> message = watch_message(keys_, line);
    if (const auto* failed = std::get_if<Failed>(&message)) return end_watch(failed->reason);
    const OnMessage on_message = on_message_;
    on_message(message);
    if (!on_message_) return;
  }
  if (watch_line_.size() > kMostAnswerBytes) end_watch("a message of over 1 MiB");
}

void Gateway::end_watch(const std::string& reason) {
  const OnMessage on_message = std::exchange(on_message_, nullptr);
  const std::string text = to_string(endpoints_[watch_next_]) + ": " + reason;
  watch_next_ = (watch_next_ + 1) % endpoints_.size();
  stop_watching();
  if (on_message) on_message(Failed{text});
}

// A refusal of etcd applies to all endpoints. All other errors may be specific to this endpoint.
std::variant<Answer, Failed> Gateway::judge(const Call& call, const Result<HttpAnswer>& answer) {
  std::variant<Answer, Failed> result =
      answer ? answer_of(call, keys_, answer->status, answer->body)
             : std::variant<Answer, Failed>(Failed{answer.error().message});
  Failed* const failed = std::get_if<Failed>(&result);
  if (failed == nullptr || failed->is_refused) return result;
  if (answer) failed->reason = to_string(endpoints_[next_]) + ": " + failed->reason;
  next_ = (next_ + 1) % endpoints_.size();
  return result;
}

}  // namespace drun::rendezvous::etcd
