#include "agent/lookers.h"

#include <unistd.h>

#include <string>
#include <utility>

namespace drun::agent {

Result<void> Lookers::open(asio::io_context& io, const AgentSpec& spec, const Log& log,
                           const std::function<NodeStatus()>& status, JobQuestions::Ask ask_job) {
  if (!spec.events_file.empty()) {
    Result<EventFile> events = EventFile::open(
        spec.events_file,
        {.run_id = spec.join.run_id, .host = spec.host, .pid = static_cast<int>(getpid())}, log);
    if (!events) return events.error();
    events_ = *std::move(events);
  }
  write(AgentStarted{spec.join.local_world_size, spec.worker.argv});
  status_socket_.emplace(io, log, "drun", [status](const StatusSocket::Reply& reply) {
    reply(status_json(status()));
  });
  job_.emplace(io, log, status, std::move(ask_job));
  if (!spec.web) return {};
  auto web = web::Server::open(io, *spec.web, [status](std::string_view method, auto page) {
    return web::answer(method, page, status);
  });
  if (!web) return web.error();
  web_ = *std::move(web);
  if (spec.web->port == 0) log.info("metrics are on port " + std::to_string(web_->port()));
  return {};
}

void Lookers::close() {
  status_socket_.reset();
  job_.reset();
  web_.reset();
}

}  // namespace drun::agent
