// edge. For those who look on: the file of events, and who asks over the local socket or HTTP how
// the job is doing.
// Owner:   Agent; keeps the io_context running until close().   Thread: the io_context's only.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "agent/event_file.h"
#include "agent/job_questions.h"
#include "agent/node_status.h"
#include "agent/spec.h"
#include "agent/status_socket.h"
#include "agent/web/server.h"
#include "rendezvous/asio.h"
#include "rendezvous/log.h"
#include "rendezvous/result.h"

namespace drun::agent {

class Lookers {
 public:
  // Errors: those of EventFile and web::Server, for what the user asked for.
  Result<void> open(asio::io_context& io, const AgentSpec& spec, const Log& log,
                    const std::function<NodeStatus()>& status, JobQuestions::Ask ask_job);
  void close();

  // The coordinator's answer to `ask_job`.
  void answer(std::uint64_t question, const Census& census) {
    if (job_) job_->answer(question, census);
  }
  EventFile& events() { return events_; }
  void write(const Event& event) { events_.write(event); }

 private:
  EventFile events_;
  std::optional<StatusSocket> status_socket_;
  std::optional<JobQuestions> job_;
  std::unique_ptr<web::Server> web_;
};

}  // namespace drun::agent
