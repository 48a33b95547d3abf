// Simulated hangs, and the collection of stacks and status from all nodes.
#include <set>

#include "tests/sim/cluster.h"

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

void Cluster::act(int node, const CollectEvidence& look) {
  if (percent() < mute_chance_) return;
  later(between(0, kLongestLook), [this, node, look] {
    const Node& self = node_at(node);
    Evidence evidence;
    if (self.running) {
      const int first = self.running->base_rank;
      const int last = first + self.running->local_world_size - 1;
      evidence.groups.push_back({.ranks = {{first, first}},
                                 .is_quiet = self.is_hung,
                                 .source = "sim",
                                 .lines = {self.is_hung ? "there" : "here"}});
      if (last > first)
        evidence.groups.push_back(
            {.ranks = {{first + 1, last}}, .source = "sim", .lines = {"here"}});
    }
    tell_member(node, OwnEvidence{look.look, evidence});
  });
}

void Cluster::ask(int node) {
  Node& self = node_at(node);
  if (!self.is_alive || self.outcome) return;
  ++self.open_questions;
  tell_member(node, OwnQuestion{static_cast<std::uint64_t>(self.open_questions)});
  ++self.census_questions;
  tell_member(node, OwnCensusQuestion{static_cast<std::uint64_t>(self.census_questions)});
}

void Cluster::act(int node, const SummarizeNode& wanted) {
  if (percent() < mute_chance_) return;
  later(between(0, 300), [this, node, wanted] {
    const Node& self = node_at(node);
    const int running = self.running ? self.running->local_world_size : 0;
    tell_member(node, OwnSummary{wanted.census, {.workers_running = running}});
  });
}

// The census lists every node exactly once.
void Cluster::act(int node, const CensusResult& heard) {
  Node& self = node_at(node);
  require(heard.question == 1 && ++self.census_answers <= self.census_questions,
          "a status reply without a request, or a second one");
  if (!heard.census.note.empty()) return;
  ++censuses_told_;
  std::set<int> seen(heard.census.missing_ranks.begin(), heard.census.missing_ranks.end());
  for (const CensusNode& one : heard.census.nodes)
    require(one.node_rank && seen.insert(*one.node_rank).second, "a node stands in two places");
  require(seen.size() == nodes_.size(), "a node stands in no place");
}

void Cluster::act(int node, const StacksResult& told) {
  Node& self = node_at(node);
  require(told.question == 1 && ++self.answers <= self.open_questions,
          "a reply without a request, or a second one");
  std::set<int> seen;
  for (const StackGroup& group : told.evidence.groups) {
    for (const RankRange& range : group.ranks) {
      for (int rank = range.first; rank <= range.last; ++rank)
        require(seen.insert(rank).second, "a rank that stands in two places");
    }
  }
  ++questions_answered_;
}

void Cluster::act(int node, const ShowHang& hang) {
  const Node& self = node_at(node);
  require(self.member.world && self.member.world->round == hang.found.round,
          "a hang of another round is shown");
  ++hangs_shown_;
}

}  // namespace drun::test
