// edge. Queries of local sockets about the whole job, for `drun status`, `drun stacks` and
// `drun logs`: forwarded to the coordinator, and answered with its result, or with a note that it
// did not answer in time.
//
// Owner:   Observers; keeps the io_context running until it is destroyed.
// Thread:  the io_context's only.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/status/status_socket.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::agent {

class ForwardedQueries {
 public:
  // Sends a query to the coordinator; its result is passed to answer().
  using Send = std::function<void(const rendezvous::Query&)>;
  // The query for a request of a client, without a number. Absent: the request is malformed.
  using Read = std::function<std::optional<rendezvous::Query>(const std::string& request)>;
  // The text for the client.
  using Show = std::function<std::string(const rendezvous::QueryResult&)>;

  ForwardedQueries(asio::io_context& io, const Log& log, Send send)
      : io_(io), log_(log), send_(std::move(send)) {}

  // Opens a socket with the prefix `word` (status_socket.h).
  void serve(const std::string& word, StatusSocket::Requests requests, Read read, Show show);

  // Passes the result to its socket; drops a result without an open query.
  void answer(const rendezvous::QueryResult& result);

 private:
  struct Waiting {
    Show show;
    StatusSocket::Reply reply;
    std::unique_ptr<asio::steady_timer> timer;
  };

  void forward(rendezvous::Query query, const Show& show, StatusSocket::Reply reply);

  asio::io_context& io_;
  const Log log_;
  const Send send_;
  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Waiting> waiting_;
  std::list<StatusSocket> sockets_;
};

}  // namespace drun::agent
