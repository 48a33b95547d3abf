// edge. HTTP 1.1 to one of several servers: sends a body and receives the answer's. Plain, or over
// TLS with certificates. Only its .cc includes Boost.Beast and Asio's TLS.
//
// Shape:   one call at a time. The connection is kept for the next call to the same server.
// Limits:  the size of an answer's head and body; `limit` is the time for a whole call, with lookup
//          and handshake.
// Owner:   the caller; destruction closes it silently.
// Thread:  the io_context's only. Names are looked up on other threads (connector.h).
// Errors:  Unreachable, Timeout; Refused: the server does not use HTTP, or its certificate is
//          wrong. Each error closes the connection. HTTP status codes are not errors. No throws.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous::etcd {

class HttpTls {
 public:
  // Errors: Usage, naming the file and the reason.
  static Result<std::shared_ptr<HttpTls>> make(const CertificateFiles& files);
  ~HttpTls();
  HttpTls(const HttpTls&) = delete;
  HttpTls& operator=(const HttpTls&) = delete;

 private:
  friend class HttpClient;
  struct Parts;
  explicit HttpTls(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

struct HttpRequest {
  Endpoint server{};
  std::string path{};
  std::string body{};
};
struct HttpAnswer {
  int status = 0;
  std::string body{};
};

class HttpClient {
 public:
  using Done = std::function<void(Result<HttpAnswer>)>;

  // `tls`: null for plain HTTP.
  HttpClient(asio::io_context& io, std::shared_ptr<HttpTls> tls, std::size_t most_answer_bytes);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Calls `on_done` once, from the loop, unless `close` is called first. Not during another call.
  void post(HttpRequest request, std::chrono::milliseconds limit, Done on_done);

  // For an answer without an end, such as a watch: `on_data` gets its bytes as they arrive. `limit`
  // is for the head of the answer only. `on_end` is called once, with the reason, or with the whole
  // answer if its status is not 200, unless `close` is called first. Both may call `close`.
  using OnData = std::function<void(std::string_view)>;
  void stream(HttpRequest request, std::chrono::milliseconds limit, OnData on_data, Done on_end);
  void close();

 private:
  void open(const Endpoint& server);
  class Connection;
  asio::io_context& io_;
  const std::shared_ptr<HttpTls> tls_;
  const std::size_t most_answer_bytes_;
  std::shared_ptr<Connection> connection_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous::etcd
