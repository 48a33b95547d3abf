#include "rendezvous/coordinator/node_queries.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace drun::rendezvous {

OpenQuery& NodeQueries::open(QueryKind kind, const std::vector<Peer>& asked, Time now) {
  OpenQuery& query = open_[++last_number_];
  query.number = last_number_;
  query.kind = kind;
  query.answer_by = now + rules_of(kind).limit;
  query.missing.insert(asked.begin(), asked.end());
  return query;
}

OpenQuery* NodeQueries::shared(QueryKind kind) {
  if (!rules_of(kind).is_shared) return nullptr;
  const auto found = std::find_if(open_.begin(), open_.end(),
                                  [kind](const auto& each) { return each.second.kind == kind; });
  return found == open_.end() ? nullptr : &found->second;
}

bool NodeQueries::has_room(QueryKind kind, Peer requester) const {
  std::size_t all = 0;
  std::size_t own = 0;
  for (const auto& [number, query] : open_) {
    if (query.kind != kind) continue;
    all += query.requesters.size();
    for (const Requester& each : query.requesters) own += each.peer == requester ? 1 : 0;
  }
  return all < kMostRequests && own < kMostRequestsOfMember;
}

OpenQuery* NodeQueries::take_awaited(std::uint64_t number, Peer peer) {
  const auto found = open_.find(number);
  const bool is_awaited = found != open_.end() && found->second.missing.erase(peer) > 0;
  return is_awaited ? &found->second : nullptr;
}

void NodeQueries::lose(Peer peer, const std::string& note) {
  for (auto& [number, query] : open_) {
    if (query.missing.erase(peer) > 0) query.lost.push_back(note);
  }
}

std::vector<OpenQuery> NodeQueries::take_ended(Time now) {
  std::vector<OpenQuery> ended;
  for (auto each = open_.begin(); each != open_.end();) {
    const bool has_ended = each->second.missing.empty() || now >= each->second.answer_by;
    if (has_ended) ended.push_back(std::move(each->second));
    each = has_ended ? open_.erase(each) : std::next(each);
  }
  return ended;
}

std::optional<Time> NodeQueries::next_deadline() const {
  std::optional<Time> next;
  for (const auto& [number, query] : open_)
    next = std::min(next.value_or(query.answer_by), query.answer_by);
  return next;
}

std::shared_ptr<const QueryResult> NodeQueries::fresh_result(QueryKind kind, Time now) const {
  const auto found = kept_.find(kind);
  return found != kept_.end() && now < found->second.until ? found->second.result : nullptr;
}

void NodeQueries::keep(QueryKind kind, std::shared_ptr<const QueryResult> result, Time now) {
  const std::chrono::milliseconds fresh = rules_of(kind).fresh;
  if (fresh.count() > 0) kept_[kind] = {std::move(result), now + fresh};
}

}  // namespace drun::rendezvous
