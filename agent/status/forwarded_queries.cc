#include "agent/status/forwarded_queries.h"

#include <utility>

namespace drun::agent {

ForwardedQueries::ForwardedQueries(asio::io_context& io, const Log& log, const std::string& word,
                                   std::chrono::seconds limit, Ask ask, Unanswered unanswered,
                                   StatusSocket::Requests requests)
    : io_(io),
      limit_(limit),
      ask_(std::move(ask)),
      unanswered_(std::move(unanswered)),
      socket_(
          io, log, word,
          [this](const std::string& request, StatusSocket::Reply reply) {
            this->ask(request, std::move(reply));
          },
          requests) {}

void ForwardedQueries::ask(const std::string& request, StatusSocket::Reply reply) {
  const std::uint64_t number = ++last_question_;
  auto timer = std::make_unique<asio::steady_timer>(io_, limit_);
  timer->async_wait([this, number](const error_code& ec) {
    if (ec) return;
    answer(number, [this] {
      return unanswered_("the coordinator has not answered in " + std::to_string(limit_.count()) +
                         " s");
    });
  });
  questions_.emplace(number, Question{std::move(reply), std::move(timer)});
  ask_(number, request);
}

void ForwardedQueries::answer(std::uint64_t question, const std::function<std::string()>& text) {
  const auto found = questions_.find(question);
  if (found == questions_.end()) return;
  const StatusSocket::Reply reply = std::move(found->second.reply);
  questions_.erase(found);
  reply(text());
}

}  // namespace drun::agent
