// edge. The connections to etcd: HTTP 1.1 over TCP or TLS, and the calls over it.
//
// Owner:   the caller; destruction closes the connections silently.
// Thread:  the io_context's only. Names are looked up on other threads (connector.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/leader/etcd_calls.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/endpoint.h"

namespace drun::rendezvous::etcd {

// --- HTTP to one of several servers: sends a body and receives the answer's. Plain, or over TLS
// with certificates. Only the .cc includes Boost.Beast and Asio's TLS.
//
// Shape:   one call at a time. The connection is kept for the next call to the same server.
// Limits:  the size of an answer's head and body; `limit` is the time for a whole call, with lookup
//          and handshake.
// Errors:  Unreachable, Timeout; Refused: the server does not use HTTP, or its certificate is
//          wrong. Each error closes the connection. HTTP status codes are not errors. No throws.

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

// --- Calls: one at a time is sent to one of etcd's endpoints, and to the next one if an endpoint
// does not answer. A watch has a separate connection.
//
// Errors:  Failed, naming the endpoint. It does not repeat a call: etcd_election.h decides about
//          that.

class Gateway {
 public:
  using Done = std::function<void(const std::variant<Answer, Failed>&)>;

  // `tls`: null for http.
  Gateway(asio::io_context& io, std::vector<Endpoint> endpoints, Keys keys,
          const std::shared_ptr<HttpTls>& tls);

  // Calls `on_done` once, from the loop, unless `close` is called first. Not during another call.
  void ask(const Call& call, std::chrono::milliseconds limit, Done on_done);
  void close();

  // Watches the leader's key for changes from revision `from` on; replaces an earlier watch.
  // `on_message` is called from the loop for each message, and once with Failed when the watch has
  // ended, unless `stop_watching` or `close` is called first.
  using OnMessage = std::function<void(const std::variant<WatchMessage, Failed>&)>;
  void watch(Revision from, OnMessage on_message);
  void stop_watching();

 private:
  void on_watch_data(std::string_view bytes);
  void end_watch(const std::string& reason);
  std::variant<Answer, Failed> judge(const Call& call, const Result<HttpAnswer>& answer);

  const std::vector<Endpoint> endpoints_;
  const Keys keys_;
  HttpClient client_;
  HttpClient watch_client_;
  std::string watch_line_;  // the part that has arrived
  OnMessage on_message_;
  std::size_t watch_next_ = 0;  // of the endpoints
  std::size_t next_ = 0;        // of the endpoints: whom to ask
  bool is_asking_ = false;
};

}  // namespace drun::rendezvous::etcd
