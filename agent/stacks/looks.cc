#include "agent/stacks/looks.h"

#include <chrono>
#include <utility>

#include "agent/stacks/evidence_json.h"
#include "rendezvous/round/looking.h"

namespace drun::agent {
namespace {

// The coordinator itself waits for the nodes that long.
constexpr std::chrono::seconds kAnswerLimit = rendezvous::kLookLimit + std::chrono::seconds(3);

}  // namespace

void Looks::open(const Log& log, std::string run_id, Ask ask_coordinator) {
  run_id_ = std::move(run_id);
  ask_ = std::move(ask_coordinator);
  socket_.emplace(io_, log, "drun-stacks",
                  [this](StatusSocket::Reply reply) { ask(std::move(reply)); });
}

void Looks::ask(StatusSocket::Reply reply) {
  const std::uint64_t number = ++last_question_;
  auto timer = std::make_unique<asio::steady_timer>(io_, kAnswerLimit);
  timer->async_wait([this, number](const error_code& ec) {
    if (ec) return;
    answer(number, {.notes = {"the coordinator has not answered in " +
                              std::to_string(kAnswerLimit.count()) + " s"}});
  });
  questions_.emplace(number, Question{std::move(reply), std::move(timer)});
  ask_(number);
}

void Looks::answer(std::uint64_t question, const Evidence& evidence) {
  const auto found = questions_.find(question);
  if (found == questions_.end()) return;
  const StatusSocket::Reply reply = std::move(found->second.reply);
  questions_.erase(found);
  reply(evidence_json(evidence, run_id_));
}

void Looks::close() {
  collector_.stop();
  questions_.clear();
  socket_.reset();
}

}  // namespace drun::agent
