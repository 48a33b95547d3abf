#include "rendezvous/coordinator/admission.h"

#include "rendezvous/coordinator/elastic_world.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::rendezvous {
namespace {

// More than any real job has; keeps sums of ranks within int.
constexpr int kMostLocalWorkers = 1 << 20;
constexpr int kMostWorkers = 1 << 30;

Error refused(std::string reason) { return Error{ErrorCode::Refused, std::move(reason)}; }

std::string range(int least, int most) {
  return (least == most ? "" : std::to_string(least) + ":") + std::to_string(most);
}
std::string nodes_text(const RoundState& state) {
  return range(state.spec.elastic ? state.spec.elastic->min_nodes : state.spec.node_count,
               state.spec.node_count);
}
// A Hello with a node rank is from a fixed-size job.
std::string nodes_text(const Hello& hello) {
  return range(hello.node_rank ? hello.node_count : hello.min_node_count, hello.node_count);
}

const Hello* host_of(const RoundState& state) {
  for (const RoundNode& node : state.nodes) {
    if (node.presence == RoundNode::Presence::Present && node.hello.is_coordinator)
      return &node.hello;
  }
  for (const auto& [peer, candidate] : state.line) {
    if (candidate.hello.is_coordinator) return &candidate.hello;
  }
  return nullptr;
}

std::optional<Error> line_objection(const RoundState& state, const Hello& hello) {
  if (hello.node_rank)
    return refused("it was given --node-rank=" + std::to_string(*hello.node_rank) +
                   ", but this job's nodes get their numbers from the coordinator; leave it out");
  if (state.line.size() >= most_in_line(state))
    return refused("too many nodes wait there already (" + std::to_string(state.line.size()) + ")");
  const Hello* host = hello.is_coordinator ? host_of(state) : nullptr;
  if (host == nullptr || host->instance == hello.instance) return std::nullopt;
  return refused("host " + host->host + " (pid " + std::to_string(host->pid) +
                 ") is the coordinator there already; give is_host=1 to one node, or none");
}

std::optional<Error> rank_objection(const RoundState& state, const Hello& hello) {
  if (!hello.node_rank) return refused("it names no node rank; give it a --node_rank");
  const int node_rank = *hello.node_rank;
  if (node_rank >= state.spec.node_count)
    return refused("node rank " + std::to_string(node_rank) +
                   " is out of range: --nnodes=" + std::to_string(state.spec.node_count) +
                   " has node ranks 0 to " + std::to_string(state.spec.node_count - 1));
  const RoundNode& holder = state.nodes[static_cast<std::size_t>(node_rank)];
  if (holder.presence == RoundNode::Presence::Absent) return std::nullopt;
  const bool is_back =
      holder.hello.instance == hello.instance && state.phase == RoundPhase::Joining;
  if (is_back) return std::nullopt;
  return refused("node rank " + std::to_string(node_rank) + " is taken by host " +
                 holder.hello.host + " (pid " + std::to_string(holder.hello.pid) +
                 "); give each node a different --node_rank");
}

}  // namespace

std::optional<Error> objection(const RoundState& state, const Hello& hello) {
  if (state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over)
    return Error{ErrorCode::Closed, "the job there is over; start it again on all nodes"};
  if (hello.run_id != state.spec.run_id)
    return refused("it belongs to run id \"" + hello.run_id + "\", but this is run id \"" +
                   state.spec.run_id +
                   "\"; give the same --rdzv-id on all nodes, or another job another port");
  const int least = state.spec.elastic ? state.spec.elastic->min_nodes : 1;
  const bool is_same_range = hello.min_node_count == least || !state.spec.elastic;
  if (hello.node_count != state.spec.node_count || !is_same_range)
    return refused("it was started with --nnodes=" + nodes_text(hello) +
                   ", but the coordinator with --nnodes=" + nodes_text(state) +
                   "; give the same number on all nodes");
  const bool is_gathered = state.spec.line_window_bytes > 0;
  if (hello.gathers != is_gathered)
    return refused(std::string("it was started ") + (hello.gathers ? "with" : "without") +
                   " --gather-logs, but the coordinator " + (is_gathered ? "with" : "without") +
                   " it; give it to all nodes, or to none");
  if (auto error = state.spec.elastic ? line_objection(state, hello) : rank_objection(state, hello))
    return error;
  if (hello.local_world_size < 1 || hello.local_world_size > kMostLocalWorkers ||
      hello.local_world_size > kMostWorkers - state.world_size - state.line_workers)
    return refused("--nproc_per_node=" + std::to_string(hello.local_world_size) +
                   " is not a number of workers that a world can take");
  return std::nullopt;
}

bool is_own_probe(const RoundState& state, const Hello& hello) {
  if (!hello.is_probe) return false;
  const Hello* host = state.spec.elastic ? host_of(state) : &state.nodes.front().hello;
  return host != nullptr && host->instance == hello.instance;
}

}  // namespace drun::rendezvous
