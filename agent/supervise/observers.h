// edge. Serves observers of the job: writes the event file, and answers queries about the job and
// its workers over the local sockets and HTTP. Keeps the io_context running until close().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/http/server.h"
#include "agent/spec.h"
#include "agent/status/events.h"
#include "agent/status/forwarded_queries.h"
#include "agent/status/node_status.h"
#include "agent/status/status_socket.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class Observers {
 public:
  // Sources of the answers: this agent, and the coordinator, whose results are passed to answer().
  struct Sources {
    std::function<NodeStatus()> status;
    ForwardedQueries::Send send_query;
  };

  // Errors: those of EventFile and web::Server, if the user enabled them.
  Result<void> open(asio::io_context& io, const AgentSpec& spec, const Log& log, Sources sources);
  void close();

  void answer(const rendezvous::QueryResult& result) {
    if (queries_) queries_->answer(result);
  }
  EventLog& events() { return events_; }
  void write(const Event& event) { events_.write(event); }

 private:
  void open_sockets(asio::io_context& io, const Log& log);
  Result<void> open_web(asio::io_context& io, const Endpoint& place, const Log& log);

  Sources sources_;
  std::string run_id_;
  EventLog events_;
  std::optional<StatusSocket> status_socket_;
  std::optional<ForwardedQueries> queries_;
  std::unique_ptr<web::Server> web_;
};

}  // namespace drun::agent
