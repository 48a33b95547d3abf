#include "rendezvous/coordinator/round_state.h"

#include <algorithm>
#include <cassert>

#include "rendezvous/protocol/line_window.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {
namespace {

// A silent member is detected at most this long after the heartbeat timeout.
constexpr Milliseconds kMostSweepInterval{500};

int node_count_of(const RoundState& state) {
  if (!state.nodes.empty()) return static_cast<int>(state.nodes.size());
  return state.rules.pins_ranks ? state.rules.max_nodes : static_cast<int>(state.line.size());
}

}  // namespace

WorldRules rules_of(const RoundSpec& spec) {
  const int nodes = spec.node_count;
  if (spec.elastic) return {*spec.elastic, nodes};
  return {{.min_nodes = nodes}, nodes, /*pins_ranks=*/true, /*replaces_nodes=*/false};
}

RoundSpec round_spec(const JoinSpec& spec, std::uint16_t port) {
  return {.run_id = spec.run_id,
          .node_count = spec.node_count,
          .elastic = spec.elastic,
          .max_restarts = spec.max_restarts,
          .restart = spec.restart,
          .preflight = spec.preflight,
          .endpoint = to_string(Endpoint{spec.endpoint.host, port}),
          .master_addr = spec.master_addr,
          .master_port = spec.master_port != 0 ? spec.master_port : port,
          .use_agent_store = spec.store_host == StoreHost::Agent,
          .join_timeout = spec.join_timeout,
          .heartbeat_timeout = spec.heartbeat_timeout,
          .line_window_bytes = spec.gathers_lines ? line_window_bytes(spec.node_count) : 0,
          .make_stack_answers = spec.make_stack_answers};
}

RoundState open_round(RoundSpec spec, Time now) {
  assert(spec.node_count > 0);
  RoundState state;
  state.rules = rules_of(spec);
  state.is_checked = !spec.preflight;
  state.spec = std::move(spec);
  state.next_round = state.spec.rounds;
  state.opened = now;
  state.next_sweep = now + sweep_interval(state);
  state.next_roll_call = now + kRollCallInterval;
  return state;
}

std::string name_of(const RoundState& state, int node) {
  return node_text(node, node_at(state, node).hello.host);
}

std::string name_of_peer(const RoundState& state, Peer peer) {
  const auto seat = state.node_of.find(peer);
  return seat == state.node_of.end() ? "a node" : name_of(state, seat->second);
}

bool loss_ends_job(const RoundState& state, int node) {
  return !state.rules.replaces_nodes || node_at(state, node).hello.is_coordinator;
}

NodeLost node_lost(const RoundState& state, int node, std::string reason) {
  const Hello& hello = node_at(state, node).hello;
  return {node, hello.host, state.rules.replaces_nodes && hello.is_coordinator, std::move(reason)};
}

std::vector<Peer> seated_peers(const RoundState& state) {
  std::vector<Peer> peers;
  for (const RoundNode& node : state.nodes) {
    if (!node.is_lost) peers.push_back(node.peer);
  }
  return peers;
}

std::vector<Peer> all_peers(const RoundState& state) {
  std::vector<Peer> peers = seated_peers(state);
  for (const JoinedNode* waiting : line_in_order(state)) peers.push_back(waiting->peer);
  return peers;
}

std::vector<const JoinedNode*> line_in_order(const RoundState& state) {
  std::vector<const JoinedNode*> waiting;
  waiting.reserve(state.line.size());
  for (const auto& [peer, node] : state.line) waiting.push_back(&node);
  if (state.rules.pins_ranks) {
    std::sort(waiting.begin(), waiting.end(), [](const JoinedNode* one, const JoinedNode* other) {
      return one->hello.node_rank < other->hello.node_rank;
    });
  }
  return waiting;
}

const JoinedNode* member_of(const RoundState& state, Peer peer) {
  if (const auto waiting = state.line.find(peer); waiting != state.line.end())
    return &waiting->second;
  const auto seat = state.node_of.find(peer);
  return seat == state.node_of.end() ? nullptr : &node_at(state, seat->second);
}

const JoinedNode* host_of(const RoundState& state) {
  for (const RoundNode& node : state.nodes) {
    if (!node.is_lost && node.hello.is_coordinator) return &node;
  }
  for (const auto& [peer, waiting] : state.line) {
    if (waiting.hello.is_coordinator) return &waiting;
  }
  return nullptr;
}

Time::duration sweep_interval(const RoundState& state) {
  return std::min<Time::duration>(state.spec.heartbeat_timeout / 4, kMostSweepInterval);
}

std::span<const Time> restarts_of_budget(const RoundState& state) {
  const std::span<const Time> all = state.restarts;
  if (!state.spec.restart.per_progress) return all;
  return all.subspan(std::min(state.restarts_at_progress, all.size()));
}

JobTimes times_of(const RoundState& state, Time now, bool is_over) {
  JobTimesSum sum;
  const auto add = [&](int rank, const JoinedNode& node) {
    if (!node.times) return;
    NodeTimes times = *node.times;
    // With the outcome, each node knows that it is not restarting.
    if (is_over && times.current == drun::Phase::Restarting) times.current = drun::Phase::Stopping;
    times.phases.at(index_of(times.current)) +=
        std::chrono::duration_cast<Milliseconds>(now - node.times_at);
    sum.add(rank, times);
  };
  for (int node = 0; node < static_cast<int>(state.nodes.size()); ++node) {
    if (!node_at(state, node).is_lost) add(node, node_at(state, node));
  }
  for (const JoinedNode* waiting : line_in_order(state)) {
    if (waiting->hello.node_rank) add(*waiting->hello.node_rank, *waiting);
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
