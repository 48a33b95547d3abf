// Workers of a simulated job: they run, return, fail and hang. Also the collection of
// stacks and status.
#include <set>
#include <utility>

#include "tests/sim/agents.h"
#include "tests/sim/node_answers.h"

namespace drun::test {

using namespace rendezvous;

namespace {

AgedFailure with_age(AgedFailure aged, Time now) {
  aged.age = std::chrono::duration_cast<std::chrono::microseconds>(
      now.time_since_epoch() - aged.failure.time.time_since_epoch());
  return aged;
}

}  // namespace

void SimulatedAgents::act(std::size_t agent, const StartWorkers& start) {
  Agent& self = agents_[agent];
  require(!self.running, "workers are started while others still run");
  require(!self.outcome, "workers are started after the end");
  self.running = start.world;
  self.is_stopping = false;
  self.is_hung = false;
  self.failures.clear();
  const int round = start.world.round;
  if (workers_.hang_chance > 0 && !start.world.is_preflight && percent() < workers_.hang_chance)
    return later(between(0, kLongestRound), [this, agent, round] { worker_hangs(agent, round); });
  const bool is_bad = self.host > 0 && self.host <= workers_.bad_hosts;
  if (percent() < (is_bad ? 90 : workers_.failure_chance))
    later(between(0, kLongestRound), [this, agent, round] { worker_fails(agent, round); });
  else
    later(between(0, kLongestRound), [this, agent, round] { workers_return(agent, round); });
}

bool SimulatedAgents::has_workers(std::size_t agent, int round) const {
  const Agent& self = agents_[agent];
  return self.is_alive && self.running && self.running->round == round && !self.is_stopping;
}

void SimulatedAgents::worker_fails(std::size_t agent, int round) {
  if (!has_workers(agent, round)) return;
  Agent& self = agents_[agent];
  AgedFailure aged;
  aged.failure.rank = self.running->base_rank;
  aged.failure.node_rank = self.running->node_rank;
  aged.failure.round = round;
  aged.failure.status = Exited{1};
  aged.failure.time =
      WallTime(std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch()));
  trace(self.host, "a worker fails");
  worker_failed(agent, round);
  self.failures.push_back(aged);
  const bool is_slow = workers_.slow_chance > 0 && percent() < workers_.slow_chance;
  if (!is_slow) return failure_noticed(agent, round);
  later(between(0, kLongestNotice), [this, agent, round] { failure_noticed(agent, round); });
}

void SimulatedAgents::failure_noticed(std::size_t agent, int round) {
  if (!has_workers(agent, round)) return;  // reported with the others when all have stopped
  tell_member(agent, OwnFailure{with_age(agents_[agent].failures.front(), now_)});
  stop_workers(agent);
}

void SimulatedAgents::workers_return(std::size_t agent, int round) {
  if (!has_workers(agent, round)) return;
  trace(agents_[agent].host, "its workers return");
  workers_returned(agent, round);
  agents_[agent].running.reset();
  tell_member(agent, OwnSuccess{round});
}

void SimulatedAgents::act(std::size_t agent, const StopWorkers& stop) {
  if (agents_[agent].running) {
    require(agents_[agent].running->round == stop.round, "another round is stopped than runs");
    return stop_workers(agent);
  }
  later(Milliseconds(0), [this, agent, round = stop.round] {
    tell_member(agent, OwnStopped{round, {}});
  });
}

void SimulatedAgents::stop_workers(std::size_t agent) {
  if (std::exchange(agents_[agent].is_stopping, true)) return;
  later(between(0, kLongestStop), [this, agent] {
    Agent& stopped = agents_[agent];
    if (!stopped.is_alive) return;
    const int round = stopped.running->round;
    stopped.running.reset();
    OwnStopped own{.round = round};
    for (const AgedFailure& aged : std::exchange(stopped.failures, {}))
      own.failures.push_back(with_age(aged, now_));
    tell_member(agent, own);
  });
}

// The worker is silent, and its agent reports it repeatedly until the round is stopped.
void SimulatedAgents::worker_hangs(std::size_t agent, int round) {
  if (!has_workers(agent, round)) return;
  Agent& self = agents_[agent];
  if (!std::exchange(self.is_hung, true)) trace(self.host, "its workers hang");
  Failure failure;
  failure.rank = self.running->base_rank;
  failure.status = Hung{"silent"};
  failure.time =
      WallTime(std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch()));
  tell_member(agent, OwnSuspicion{round, Milliseconds(200), {failure}});
  later(kHangTimeout, [this, agent, round] { worker_hangs(agent, round); });
}

void SimulatedAgents::act(std::size_t agent, const NodeQuery& query) {
  if (percent() < workers_.mute_chance) return;
  const bool is_status = query.kind == QueryKind::Status;
  later(
      between(0, is_status ? 300 : kLongestLook), [this, agent, is_status, number = query.number] {
        const Agent& self = agents_[agent];
        tell_member(agent, NodeAnswer{number, is_status ? agent::encode_summary({})
                                                        : stacks_of(self.is_stopping ? std::nullopt
                                                                                     : self.running,
                                                                    self.is_hung)});
      });
}

void SimulatedAgents::ask(std::size_t agent) {
  Agent& self = agents_[agent];
  for (const QueryKind kind : {QueryKind::Stacks, QueryKind::Status}) {
    self.open_queries.emplace(++self.last_query, kind);
    tell_member(agent, Query{.number = self.last_query, .kind = kind});
  }
}

void SimulatedAgents::act(std::size_t agent, const QueryResult& result) {
  const auto query = agents_[agent].open_queries.extract(result.number);
  require(!query.empty(), "a result without a query, or a second one");
  if (query.empty()) return;
  if (query.mapped() == QueryKind::Status) return check_census(agents_[agent], result);
  require(has_each_rank_once(result), "a rank is listed twice");
  ++stacks_told_;
}

// The census lists each node and each host once, with or without a node rank, and each node of a
// job with a fixed number of nodes.
void SimulatedAgents::check_census(const Agent& asked, const QueryResult& result) {
  if (!result.note.empty()) return;
  const std::optional<Census> census = decode_census(result.answer);
  require(census.has_value(), "a malformed census");
  if (!census) return;
  ++censuses_told_;
  std::set<int> ranks;
  std::set<std::string> hosts;
  for (const CensusNode& node : census->nodes) {
    require(!node.node_rank || ranks.insert(*node.node_rank).second,
            "a number that two nodes have");
    require(node.presence == NodePresence::Lost || hosts.insert(node.host).second,
            "a host that stands in two places");
  }
  const JoinSpec& join = asked.member.spec.join;
  if (join.elastic) return;
  for (const int missing : census->missing_ranks)
    require(ranks.insert(missing).second, "a node that is missing and there");
  require(ranks.size() == static_cast<std::size_t>(join.node_count), "a node stands in no place");
}

void SimulatedAgents::act(std::size_t agent, const ShowHang& hang) {
  const Agent& self = agents_[agent];
  require(self.member.world && self.member.world->round == hang.found.round,
          "a hang of another round is shown");
  ++hangs_shown_;
}

}  // namespace drun::test
