// edge. The connections to etcd: one call at a time is sent to one of its endpoints, and to the
// next one if an endpoint does not answer. A watch has a separate connection. Destruction closes
// both silently. Use it on the io_context's thread only.
//
// Errors:  Failed, naming the endpoint. It does not repeat a call: etcd_election.h decides about
// that.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/leader/etcd_calls.h"
#include "rendezvous/leader/etcd_http.h"

namespace drun::rendezvous::etcd {

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
