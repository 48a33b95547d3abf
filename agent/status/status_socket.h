// edge. The local sockets at which an agent answers `drun status`, `drun stacks` or `drun logs`.
// Their names are in the abstract namespace, so nothing is left behind if the agent is killed.
//
// Name:    "@drun/<uid>/<pid>/<random>" ("@drun-stacks/..."), listed in /proc/net/unix of its
//          network namespace.
// Flow:    a client gets one text and the end of the stream. With Requests::Line it first sends a
//          line of at most kMostRequestBytes, within 2 s; otherwise nothing is read from it.
// Safety:  answers only the same user and root (SO_PEERCRED); at most 16 clients at a time, each
//          for up to 2 s once the answer is ready.
// Owner:   Observers; keeps the io_context running until stop().   Thread: the io_context's only.
// Errors:  none; if such sockets are not available, there is no status, which is logged (debug).
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::agent {

class StatusSocket {
 public:
  // Takes the text, once, now or later. If it is destroyed uncalled, the client gets an empty
  // answer.
  using Reply = std::function<void(std::string text)>;
  // `request`: with its line end; empty without Requests::Line.
  using Ask = std::function<void(const std::string& request, Reply reply)>;
  enum class Requests { None, Line };
  static constexpr std::size_t kMostRequestBytes = 128;

  // `word`: the first part of the name, "drun".
  StatusSocket(asio::io_context& io, const Log& log, const std::string& word, Ask ask,
               Requests requests = Requests::None);
  ~StatusSocket();
  StatusSocket(const StatusSocket&) = delete;
  StatusSocket& operator=(const StatusSocket&) = delete;

  // `ask` is not called afterwards, and later replies are dropped. Idempotent.
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // handlers keep it alive until they have run
};

// --- Queries about the whole job: forwarded to the coordinator, and answered with its result, or
// with a note that it did not answer in time. Keeps the io_context running until it is destroyed.

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
  std::shared_ptr<char> alive_ = std::make_shared<char>();  // expired: this object was destroyed
};

}  // namespace drun::agent
