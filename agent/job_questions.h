// edge. What `drun status` asks on this node of the whole job: passed on to the coordinator, and
// answered when it has answered, or with what this node knows when it has not in time.
//
// Owner:   Lookers; keeps the io_context running until close().   Thread: the io_context's only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "agent/node_status.h"
#include "agent/status_socket.h"
#include "rendezvous/asio.h"
#include "rendezvous/census.h"
#include "rendezvous/log.h"

namespace drun::agent {

class JobQuestions {
 public:
  // To the coordinator; `answer` below brings the answer.
  using Ask = std::function<void(std::uint64_t question)>;

  // Opens the socket that `drun status` finds.
  JobQuestions(asio::io_context& io, const Log& log, std::function<NodeStatus()> status, Ask ask);

  // Who asked is told; a question that nobody asked, or asked too long ago, is dropped.
  void answer(std::uint64_t question, const Census& census);

 private:
  struct Question {
    StatusSocket::Reply reply;
    std::unique_ptr<asio::steady_timer> timer;
  };

  void ask(StatusSocket::Reply reply);

  asio::io_context& io_;
  const std::function<NodeStatus()> status_;
  const Ask ask_;
  std::uint64_t last_question_ = 0;
  std::map<std::uint64_t, Question> questions_;
  StatusSocket socket_;
};

}  // namespace drun::agent
