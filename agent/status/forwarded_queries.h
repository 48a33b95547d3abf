// edge. Queries of a local socket about the whole job, for `drun status` and `drun stacks`:
// forwarded to the coordinator, and answered with its answer, or with a note that it did not answer
// in time.
//
// Owner:   Observers; keeps the io_context running until it is destroyed.
// Thread:  the io_context's only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/status/status_socket.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class ForwardedQueries {
 public:
  // Sends a query to the coordinator; its answer is passed to answer().
  using Ask = std::function<void(std::uint64_t question, const std::string& request)>;
  // The answer if the coordinator has sent none. `why` is a sentence.
  using Unanswered = std::function<std::string(const std::string& why)>;

  // Opens the socket with the prefix `word` (status_socket.h). `limit`: for the coordinator's
  // answer.
  ForwardedQueries(asio::io_context& io, const Log& log, const std::string& word,
                   std::chrono::seconds limit, Ask ask, Unanswered unanswered,
                   StatusSocket::Requests requests = StatusSocket::Requests::None);

  // Passes the answer to the socket; drops an answer without a question, or to an expired one.
  void answer(std::uint64_t question, const std::function<std::string()>& text);

 private:
  struct Question {
    StatusSocket::Reply reply;
    std::unique_ptr<asio::steady_timer> timer;
  };

  void ask(const std::string& request, StatusSocket::Reply reply);

  asio::io_context& io_;
  const std::chrono::seconds limit_;
  const Ask ask_;
  const Unanswered unanswered_;
  std::uint64_t last_question_ = 0;
  std::map<std::uint64_t, Question> questions_;
  StatusSocket socket_;
};

}  // namespace drun::agent
