// core. The coordinator's queries of nodes, as part of its state machine (round.h): which of them
// are open, which nodes have not answered yet, which members wait for the result, and what that is.
// The result of a query of the status is a census: the state of the round, and the answer of each
// node. Times are points of the steady clock.
//
//             requested                     all have answered or are lost, or time is up
//   closed ----------------------> open ------------------------------------------------> closed
//
// Answers with another number, answers of nodes that were not asked, and second answers are
// ignored.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/job/census.h"
#include "rendezvous/job/stack_answers.h"

namespace drun::rendezvous {

struct QueryRules {
  std::chrono::seconds limit{0};  // for the nodes' answers
  // One is open at a time. Requests during it get its result, and so do requests within `fresh`
  // after it.
  bool is_shared = true;
  std::chrono::milliseconds fresh{0};
};

constexpr QueryRules rules_of(QueryKind kind) {
  switch (kind) {
    case QueryKind::Status:  // costs one message to each node and back, at most twice a second
      return {.limit = std::chrono::seconds(2), .fresh = std::chrono::milliseconds(500)};
    case QueryKind::Stacks:  // longer than the time limit of an agent (agent/stacks/stacks.h)
      return {.limit = std::chrono::seconds(10)};
    case QueryKind::Log:
      break;
  }
  return {.limit = std::chrono::seconds(5), .is_shared = false};
}

// Requests of one kind that wait for a result; further ones are refused.
constexpr std::size_t kMostRequests = 256;
constexpr std::size_t kMostRequestsOfMember = 32;

struct OpenQuery {
  std::uint64_t number = 0;
  QueryKind kind = QueryKind::Status;
  Time answer_by{};
  std::unordered_set<Peer> missing{};               // asked, and neither answered nor lost
  std::vector<std::string> lost{};                  // "node 3 (host3): lost, its connection closed"
  std::unordered_map<Peer, std::string> answers{};  // not for stacks:
  std::unique_ptr<StackAnswers> stacks{};
  std::vector<Requester> requesters{};
};

class NodeQueries {
 public:
  OpenQuery& open(QueryKind kind, const std::vector<Peer>& asked, Time now);
  // The open query whose result a new request of this kind gets; null: none.
  OpenQuery* shared(QueryKind kind);
  bool has_room(QueryKind kind, Peer requester) const;

  // The query that waits for this answer, and does not from now on; null: none.
  OpenQuery* take_awaited(std::uint64_t number, Peer peer);
  // The peer will not answer.
  void lose(Peer peer, const std::string& note);
  // Closes queries that have ended.
  std::vector<OpenQuery> take_ended(Time now);
  std::optional<Time> next_deadline() const;

  // The result of the latest query of this kind while it is fresh; else null.
  std::shared_ptr<const QueryResult> fresh_result(QueryKind kind, Time now) const;
  void keep(QueryKind kind, std::shared_ptr<const QueryResult> result, Time now);

 private:
  struct Kept {
    std::shared_ptr<const QueryResult> result{};
    Time until{};
  };

  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, OpenQuery> open_;
  std::map<QueryKind, Kept> kept_;
};

// --- Queries as part of the round (round_state.h)

struct RoundState;
struct RoundStep;

// A member has sent a query. The answer follows once the nodes have answered, or at once if there
// is no node to ask.
void receive_query(RoundStep& step, Peer peer, const Query& query);

// Asks these nodes for their stacks.
void ask_for_stacks(RoundStep& step, std::vector<Peer> peers);

// A node has answered a query. Returns false if it breaks the protocol.
[[nodiscard]] bool receive_answer(RoundStep& step, Peer peer, const NodeAnswer& given);

// The peer will not answer.
void lose_answers(RoundState& state, Peer peer, const std::string& reason);

// Sends the results of queries that have ended. O(nodes) if a node has not answered, and for a
// census. Returns the query of stacks and its result, if one is among them.
struct EndedQuery {
  OpenQuery query{};
  std::shared_ptr<const QueryResult> result{};
};
std::optional<EndedQuery> conclude_queries(RoundStep& step);

// O(1), except for copying the failure and the excluded nodes.
JobFacts facts_of(const RoundState& state, Time now);

// From the answers to `query` that have arrived. O(nodes).
Census census_of(const RoundState& state, const OpenQuery& query, Time now);

}  // namespace drun::rendezvous
