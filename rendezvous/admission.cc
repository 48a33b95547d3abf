#include "rendezvous/admission.h"

#include "rendezvous/roll_call.h"

namespace drun::rendezvous {
namespace {

// Beyond any real job; keeps sums of ranks inside int.
constexpr int kMostLocalWorkers = 1 << 20;
constexpr int kMostWorkers = 1 << 30;

Error refused(std::string reason) { return Error{ErrorCode::Refused, std::move(reason)}; }

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
                 "); give every node a --node_rank of its own");
}

}  // namespace

std::optional<Error> objection(const RoundState& state, const Hello& hello) {
  if (state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over)
    return Error{ErrorCode::Closed, "the job there is over; start it again on all nodes"};
  if (hello.run_id != state.spec.run_id)
    return refused("it belongs to run id \"" + hello.run_id + "\", but this is run id \"" +
                   state.spec.run_id +
                   "\"; give the same --rdzv-id on all nodes, or another job another port");
  if (hello.node_count != state.spec.node_count)
    return refused("it was started with --nnodes=" + std::to_string(hello.node_count) +
                   ", but the coordinator with --nnodes=" + std::to_string(state.spec.node_count) +
                   "; give the same number on all nodes");
  if (auto error = rank_objection(state, hello)) return error;
  if (hello.local_world_size < 1 || hello.local_world_size > kMostLocalWorkers ||
      hello.local_world_size > kMostWorkers - state.world_size)
    return refused("--nproc_per_node=" + std::to_string(hello.local_world_size) +
                   " is not a number of workers that a world can take");
  return std::nullopt;
}

bool is_own_probe(const RoundState& state, const Hello& hello) {
  return hello.is_probe && hello.instance == state.nodes.front().hello.instance;
}

}  // namespace drun::rendezvous
