// edge. The way to etcd: one call at a time goes to one of its endpoints; to the next one, after
// one that did not answer.
//
// Owner:   Candidacy; destruction closes it silently.
// Thread:  the io_context's only.
// Errors:  Failed, naming the endpoint. Nothing is asked twice here: campaign.h knows what may be.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <variant>
#include <vector>

#include "rendezvous/etcd/calls.h"
#include "rendezvous/etcd/http_client.h"

namespace drun::rendezvous::etcd {

class Gateway {
 public:
  using Done = std::function<void(const std::variant<Answer, Failed>&)>;

  // `tls`: null for http.
  Gateway(asio::io_context& io, std::vector<Endpoint> endpoints, Keys keys,
          std::shared_ptr<HttpTls> tls);

  // `on_done` is called once, from the loop, unless `close` comes first. Not while one is under
  // way.
  void ask(const Call& call, std::chrono::milliseconds limit, Done on_done);
  void close();

 private:
  std::variant<Answer, Failed> judge(const Call& call, const Result<HttpAnswer>& answer);

  const std::vector<Endpoint> endpoints_;
  const Keys keys_;
  HttpClient client_;
  std::size_t next_ = 0;  // of the endpoints: whom to ask
  bool is_asking_ = false;
};

}  // namespace drun::rendezvous::etcd
