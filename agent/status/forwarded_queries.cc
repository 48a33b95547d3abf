#include "agent/status/forwarded_queries.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rendezvous/coordinator/node_queries.h"

namespace drun::agent {

using rendezvous::Query;
using rendezvous::QueryResult;

void ForwardedQueries::serve(const std::string& word, StatusSocket::Requests requests, Read read,
                             Show show) {
  sockets_.emplace_back(
      io_, log_, word,
      [this, read = std::move(read), show = std::move(show)](const std::string& request,
                                                             StatusSocket::Reply reply) {
        std::optional<Query> query = read(request);
        if (!query) return reply(show({.note = "malformed request"}));
        forward(*std::move(query), show, std::move(reply));
      },
      requests);
}

void ForwardedQueries::forward(Query query, const Show& show, StatusSocket::Reply reply) {
  query.number = ++last_number_;
  // The coordinator itself waits for the nodes.
  const std::chrono::seconds nodes_limit = rendezvous::rules_of(query.kind).limit;
  const auto limit = nodes_limit + std::max(std::chrono::seconds(1), nodes_limit / 4);
  auto timer = std::make_unique<asio::steady_timer>(io_, limit);
  timer->async_wait([this, limit, number = query.number](const error_code& ec) {
    if (ec) return;
    answer({.number = number,
            .note = "the coordinator has not answered in " + std::to_string(limit.count()) + " s"});
  });
  waiting_.emplace(query.number, Waiting{show, std::move(reply), std::move(timer)});
  send_(query);
}

void ForwardedQueries::answer(const QueryResult& result) {
  const auto found = waiting_.find(result.number);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  waiting.reply(waiting.show(result));
}

}  // namespace drun::agent
