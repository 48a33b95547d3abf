// Simulated hangs, and queries of the stacks and the status of all nodes.
#include <set>

#include "tests/sim/cluster.h"
#include "tests/sim/node_answers.h"

namespace drun::test {

using namespace rendezvous;

// The worker is silent, and its agent reports it repeatedly until the round is stopped.
void Cluster::worker_hangs(int node, int round) {
  Node& self = node_at(node);
  if (!self.is_alive || !self.running || self.running->round != round || self.is_stopping) return;
  self.is_hung = true;
  Failure failure;
  failure.rank = self.running->base_rank;
  failure.status = Hung{"silent"};
  tell_member(node, OwnSuspicion{round, Milliseconds(200), {failure}});
  later(kHangTimeout, [this, node, round] { worker_hangs(node, round); });
}

void Cluster::act(int node, const NodeQuery& query) {
  if (percent() < mute_chance_) return;
  const bool is_status = query.kind == QueryKind::Status;
  later(between(0, is_status ? 300 : kLongestLook), [this, node, is_status, number = query.number] {
    const Node& self = node_at(node);
    const int running = self.running ? self.running->local_world_size : 0;
    tell_member(node,
                NodeAnswer{number, is_status ? agent::encode_summary({.workers_running = running})
                                             : stacks_of(self.running, self.is_hung)});
  });
}

void Cluster::ask(int node) {
  Node& self = node_at(node);
  if (!self.is_alive || self.outcome) return;
  for (const QueryKind kind : {QueryKind::Stacks, QueryKind::Status}) {
    self.open_queries.insert(++self.last_query);
    if (kind == QueryKind::Status) self.status_query = self.last_query;
    tell_member(node, Query{.number = self.last_query, .kind = kind});
  }
}

void Cluster::act(int node, const QueryResult& result) {
  Node& self = node_at(node);
  require(self.open_queries.erase(result.number) == 1, "a result without a query, or a second one");
  if (result.number == self.status_query) return check_census(result);
  require(has_each_rank_once(result), "a rank is listed twice");
  ++questions_answered_;
}

// The census lists every node exactly once.
void Cluster::check_census(const QueryResult& result) {
  if (!result.note.empty()) return;
  const std::optional<Census> census = decode_census(result.answer);
  require(census.has_value(), "a malformed census");
  if (!census) return;
  ++censuses_told_;
  std::set<int> seen(census->missing_ranks.begin(), census->missing_ranks.end());
  for (const CensusNode& one : census->nodes)
    require(one.node_rank && seen.insert(*one.node_rank).second, "a node stands in two places");
  require(seen.size() == nodes_.size(), "a node stands in no place");
}

void Cluster::act(int node, const ShowHang& hang) {
  const Node& self = node_at(node);
  require(self.member.world && self.member.world->round == hang.found.round,
          "a hang of another round is shown");
  ++hangs_shown_;
}

}  // namespace drun::test
