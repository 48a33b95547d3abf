#include "agent/job_questions.h"

#include <chrono>
#include <string>
#include <utility>

#include "agent/job_status.h"

namespace drun::agent {
namespace {

// The coordinator itself waits for the nodes that long.
constexpr std::chrono::seconds kAnswerLimit = kCensusLimit + std::chrono::seconds(1);

}  // namespace

JobQuestions::JobQuestions(asio::io_context& io, const Log& log, std::function<NodeStatus()> status,
                           Ask ask)
    : io_(io),
      status_(std::move(status)),
      ask_(std::move(ask)),
      socket_(io, log, "drun-job",
              [this](StatusSocket::Reply reply) { this->ask(std::move(reply)); }) {}

void JobQuestions::ask(StatusSocket::Reply reply) {
  const std::uint64_t number = ++last_question_;
  auto timer = std::make_unique<asio::steady_timer>(io_, kAnswerLimit);
  timer->async_wait([this, number](const error_code& ec) {
    if (ec) return;
    answer(number, {.note = "the coordinator has not answered in " +
                            std::to_string(kAnswerLimit.count()) + " s"});
  });
  questions_.emplace(number, Question{std::move(reply), std::move(timer)});
  ask_(number);
}

void JobQuestions::answer(std::uint64_t question, const Census& census) {
  const auto found = questions_.find(question);
  if (found == questions_.end()) return;
  const StatusSocket::Reply reply = std::move(found->second.reply);
  questions_.erase(found);
  reply(job_json(status_(), census));
}

}  // namespace drun::agent
