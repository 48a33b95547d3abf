#include "rendezvous/coordinator/log_collector.h"

#include <utility>

namespace drun::rendezvous {

bool LogCollector::take(const RoundState& state, Peer peer, Lines lines) {
  const auto seat = state.node_of.find(peer);
  if (sink_ == nullptr || seat == state.node_of.end() || !state.first_world) return false;
  const RoundNode& node = state.nodes[static_cast<std::size_t>(seat->second)];
  const bool is_its_own =
      lines.round == state.round && lines.local_rank < node.hello.local_world_size;
  if (!is_its_own || !ledger_.accept(peer, cost_bytes(lines))) return false;
  int before = 0;
  const RoleShare* share = share_at(node.hello.roles, lines.local_rank, before);
  const LinesFrom from{.peer = peer,
                       .node_rank = seat->second,
                       .rank = node.base_rank + lines.local_rank,
                       .host = node.hello.host,
                       .role = share == nullptr ? node.hello.role : share->role};
  sink_->on_lines(from, std::move(lines));
  return true;
}

void LogCollector::forget(Peer peer) {
  if (ledger_.forget(peer) && sink_ != nullptr) sink_->on_lines_end(peer);
}

}  // namespace drun::rendezvous
