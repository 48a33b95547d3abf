#include "rendezvous/coordinator/rank_assignment.h"

#include <cassert>
#include <utility>

#include "rendezvous/coordinator/elastic_world.h"

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostJoinedNamed = 8;
constexpr std::size_t kMostMissingNamed = 16;

int node_count_of(const RoundState& state) {
  if (!state.spec.elastic) return state.spec.node_count;
  return static_cast<int>(state.nodes.empty() ? state.line.size() : state.nodes.size());
}

std::vector<RoleShare> roles_of(const Hello& hello) {
  if (!hello.roles.empty()) return hello.roles;
  return {{.role = hello.role, .workers = hello.local_world_size}};
}

}  // namespace

void assign_ranks(RoundState& state) {
  int next_rank = 0;
  state.role_sizes.clear();
  for (RoundNode& node : state.nodes) {
    node.base_rank = next_rank;
    next_rank += node.hello.local_world_size;
    node.role_base_ranks.clear();
    for (const RoleShare& share : roles_of(node.hello)) {
      int& role_size = state.role_sizes[share.role];
      node.role_base_ranks.push_back(role_size);
      role_size += share.workers;
    }
  }
  assert(next_rank == state.world_size);
}

World world_of(const RoundState& state, int node) {
  const RoundNode& self = state.nodes[static_cast<std::size_t>(node)];
  const std::vector<RoleShare> shares = roles_of(self.hello);
  std::vector<RoleRanks> roles;
  for (std::size_t i = 0; i < self.hello.roles.size(); ++i) {
    roles.push_back({.role = shares[i].role,
                     .workers = shares[i].workers,
                     .base_rank = self.role_base_ranks[i],
                     .world_size = state.role_sizes.at(shares[i].role)});
  }
  return World{.run_id = state.spec.run_id,
               .round = state.round,
               .restarts = static_cast<int>(state.restarts.size()),
               .max_restarts = state.spec.max_restarts,
               .node_rank = node,
               .node_count = static_cast<int>(state.nodes.size()),
               .base_rank = self.base_rank,
               .local_world_size = self.hello.local_world_size,
               .world_size = state.world_size,
               .role = shares.front().role,
               .role_base_rank = self.role_base_ranks.front(),
               .role_world_size = state.role_sizes.at(shares.front().role),
               .roles = std::move(roles),
               .master_addr = state.spec.master_addr,
               .master_port = state.spec.master_port,
               .use_agent_store = state.spec.use_agent_store,
               .is_preflight = !state.is_checked};
}

Waiting roll(const RoundState& state, Time now) {
  if (state.spec.elastic) return elastic_roll(state, false, now);
  Waiting waiting{.node_count = state.spec.node_count, .joined_count = state.present_count};
  for (int node = 0; node < state.spec.node_count; ++node) {
    const RoundNode& self = state.nodes[static_cast<std::size_t>(node)];
    const bool is_missing = self.presence != RoundNode::Presence::Present;
    if (is_missing && waiting.missing.size() < kMostMissingNamed) waiting.missing.push_back(node);
    if (!is_missing && waiting.joined.size() < kMostJoinedNamed)
      waiting.joined.push_back({node, self.hello.host});
  }
  return waiting;
}

std::vector<SlowRanks::Node> speed_nodes(const RoundState& state) {
  std::vector<SlowRanks::Node> nodes;
  nodes.reserve(state.nodes.size());
  for (const RoundNode& node : state.nodes)
    nodes.push_back({.host = node.hello.host,
                     .slot = node.hello.slot,
                     .workers = node.hello.local_world_size,
                     .roles = roles_of(node.hello)});
  return nodes;
}

JobTimes times_of(const RoundState& state, Time now, bool is_over) {
  JobTimesSum sum;
  for (std::size_t node = 0; node < state.nodes.size(); ++node) {
    const RoundNode& self = state.nodes[node];
    if (!self.times || self.presence != RoundNode::Presence::Present) continue;
    NodeTimes times = *self.times;
    // With the outcome, each node knows that it is not restarting.
    if (is_over && times.current == drun::Phase::Restarting) times.current = drun::Phase::Stopping;
    times.phases.at(index_of(times.current)) +=
        std::chrono::duration_cast<Milliseconds>(now - self.times_at);
    sum.add(static_cast<int>(node), times);
  }
  return sum.total();
}

Outcome outcome_of(const RoundState& state, Ending ending, Time now) {
  Outcome outcome{.ending = std::move(ending),
                  .run_id = state.spec.run_id,
                  .node_count = node_count_of(state),
                  .world_size = state.first_world ? state.world_size : 0,
                  .restarts = static_cast<int>(state.restarts.size()),
                  .max_restarts = state.spec.max_restarts,
                  .left_out = all_left_out(state.exclusions),
                  .times = times_of(state, now, true),
                  .slow = state.slow_ranks.found()};
  if (std::holds_alternative<WorkersFailed>(outcome.ending))
    outcome.failures_left_out = state.failures.left_out();
  if (state.first_world)
    outcome.duration = std::chrono::duration_cast<Milliseconds>(now - *state.first_world);
  return outcome;
}

}  // namespace drun::rendezvous
