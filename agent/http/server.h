// edge. Answers HTTP on a separate port while a job runs: --metrics-port.
//
// Limits:  32 connections at a time, each with one request of at most 8 KiB and no body, for 5 s;
//          further ones are closed unread.
// Owner:   Agent; keeps the io_context running until stop().   Thread: the io_context's only.
// Errors:  open: System if the port is not available, with the port and the remedy; Usage for an
//          address that is not one of this host. No errors afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "agent/http/answers.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/endpoint.h"

namespace drun::agent::web {

class Server {
 public:
  using Ask = std::function<Answer(std::string_view method, std::string_view target)>;

  // `where`: a numeric address; "::" is all addresses of both families, or of IPv4 if there is no
  // IPv6. Port 0: a free port.
  static Result<std::unique_ptr<Server>> open(asio::io_context& io, const Endpoint& where, Ask ask);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;

 private:
  class Impl;
  explicit Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;  // handlers keep it alive until they have run
};

}  // namespace drun::agent::web
