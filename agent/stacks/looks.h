// edge. What an agent does about looks at workers: it answers the coordinator's with what it finds
// here, and passes on what `drun stacks` asks on this node.
//
// Owner:   Agent. stop() before workers are stopped, close() at the end.
// Thread:  the io_context's only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/stacks/stacks.h"
#include "agent/status_socket.h"
#include "rendezvous/asio.h"
#include "rendezvous/evidence.h"
#include "rendezvous/log.h"

namespace drun::agent {

class Looks {
 public:
  // To the coordinator; `answer` below brings the answer.
  using Ask = std::function<void(std::uint64_t question)>;

  // `environment`: the tools'; must outlive this.
  Looks(asio::io_context& io, std::span<const std::string> environment)
      : io_(io), collector_(io, environment) {}

  // Opens the socket that `drun stacks` finds.
  void open(const Log& log, std::string run_id, Ask ask);

  // What this node's workers do; from the loop.
  StackCollector& collector() { return collector_; }

  // Who asked is told; a question that nobody asked, or asked too long ago, is dropped.
  void answer(std::uint64_t question, const Evidence& evidence);

  // Workers are about to be stopped: no tool may look at them any more. Returns the process groups
  // of tools that were killed for it.
  std::vector<int> stop() { return collector_.stop(); }
  void close();

 private:
  struct Question {
    StatusSocket::Reply reply;
    std::unique_ptr<asio::steady_timer> timer;
  };

  void ask(StatusSocket::Reply reply);

  asio::io_context& io_;
  StackCollector collector_;
  std::optional<StatusSocket> socket_;
  std::string run_id_;
  Ask ask_;
  std::uint64_t last_question_ = 0;
  std::map<std::uint64_t, Question> questions_;
};

}  // namespace drun::agent
