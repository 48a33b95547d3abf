// Elastic jobs whose workers hang, looks at all of them, and censuses.
#include <set>

#include "tests/sim/elastic_cluster.h"

namespace drun::test {

using namespace rendezvous;

// It is silent, and its agent says so again and again, until its round is stopped.
void ElasticCluster::worker_hangs(std::size_t agent, int round) {
  Agent& self = agents_[agent];
  if (!self.is_alive || !self.running || self.running->round != round || self.is_stopping) return;
  self.is_hung = true;
  Failure failure;
  failure.rank = self.running->base_rank;
  failure.status = Hung{"silent"};
  failure.time =
      WallTime(std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch()));
  tell_member(agent, OwnSuspicion{round, Milliseconds(200), {failure}});
  later(kHangTimeout, [this, agent, round] { worker_hangs(agent, round); });
}

void ElasticCluster::act(std::size_t agent, const LookAtWorkers& look) {
  if (percent() < weather_.mute_chance) return;
  later(between(0, kLongestLook), [this, agent, look] {
    const Agent& self = agents_[agent];
    Evidence evidence;
    if (self.running && !self.is_stopping) {
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
    tell_member(agent, OwnEvidence{look.look, evidence});
  });
}

void ElasticCluster::ask(std::size_t agent) {
  Agent& self = agents_[agent];
  const auto question = static_cast<std::uint64_t>(++self.questions);
  tell_member(agent, OwnQuestion{question});
  tell_member(agent, OwnCensusQuestion{question});
}

void ElasticCluster::act(std::size_t agent, const Told& told) {
  require(told.question <= static_cast<std::uint64_t>(agents_[agent].questions) &&
              agents_[agent].told.insert(told.question).second,
          "an answer to a question that nobody asked, or a second one");
  std::set<int> seen;
  for (const StackGroup& group : told.evidence.groups) {
    for (const RankRange& range : group.ranks) {
      for (int rank = range.first; rank <= range.last; ++rank)
        require(seen.insert(rank).second, "a rank that stands in two places");
    }
  }
}

void ElasticCluster::act(std::size_t agent, const SummariseNode& wanted) {
  if (percent() < weather_.mute_chance) return;
  later(between(0, 300), [this, agent, wanted] {
    tell_member(agent, OwnSummary{wanted.census, {}});
  });
}

// Who is there stands in it, with or without a number, once.
void ElasticCluster::act(std::size_t agent, const CensusHeard& heard) {
  require(heard.question <= static_cast<std::uint64_t>(agents_[agent].questions) &&
              agents_[agent].censuses.insert(heard.question).second,
          "a census that nobody asked for, or a second one");
  if (heard.census.note.empty()) ++censuses_told_;
  std::set<int> ranks;
  std::set<std::string> hosts;
  for (const CensusNode& node : heard.census.nodes) {
    require(!node.node_rank || ranks.insert(*node.node_rank).second,
            "a number that two nodes have");
    require(node.presence == NodePresence::Lost || hosts.insert(node.host).second,
            "a host that stands in two places");
  }
}

void ElasticCluster::act(std::size_t agent, const ShowHang& hang) {
  const Agent& self = agents_[agent];
  require(self.member.world && self.member.world->round == hang.found.round,
          "a hang of another round is shown");
  ++hangs_shown_;
}

}  // namespace drun::test
