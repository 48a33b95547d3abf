// edge. The connections to etcd: HTTP 1.1 over TCP or TLS, and the calls over it. Destruction
// closes them silently.
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

// TLS with certificates. Only the .cc includes Boost.Beast and Asio's TLS.
class HttpTls {
 public:
  // Errors: Usage, naming the file and the reason.
  static Result<std::shared_ptr<HttpTls>> make(const CertificateFiles& files);
  ~HttpTls();
  HttpTls(const HttpTls&) = delete;
  HttpTls& operator=(const HttpTls&) = delete;

 private:
  friend class Gateway;
  struct Parts;
  explicit HttpTls(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Calls: one at a time is sent to one of etcd's endpoints, and to the next one if an endpoint
// does not answer. A watch has a separate connection.
//
// Errors:  Failed, naming the endpoint. It does not repeat a call: etcd_election.h decides about
//          that.

class Gateway {
 public:
  using Done = std::function<void(const std::variant<Answer, Failed>&)>;

  // `tls`: null for http.
  Gateway(asio::io_context& io, std::vector<Endpoint> endpoints, Keys keys,
          std::shared_ptr<HttpTls> tls);
  ~Gateway() { close(); }
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

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
  class Connection;
  struct HttpAnswer;
  using ConnectionPtr = std::shared_ptr<Connection>;  // kept by its handlers until they have ended

  Connection& open(ConnectionPtr& connection, std::size_t endpoint);
  static void close(ConnectionPtr& connection);
  void on_watch_data(std::string_view bytes);
  void end_watch(const std::string& reason);
  std::variant<Answer, Failed> judge(const Call& call, const Result<HttpAnswer>& answer);

  asio::io_context& io_;
  const std::vector<Endpoint> endpoints_;
  const Keys keys_;
  const std::shared_ptr<HttpTls> tls_;
  ConnectionPtr calls_;  // stays open for the next call to the same endpoint
  ConnectionPtr watch_;
  std::string watch_line_;  // the part that has arrived
  OnMessage on_message_;
  std::size_t watch_next_ = 0;  // of the endpoints
  std::size_t next_ = 0;        // of the endpoints: whom to ask
  bool is_asking_ = false;
};

}  // namespace drun::rendezvous::etcd
