#include "rendezvous/server/log_collector.h"

#include <utility>

#include "rendezvous/coordinator/round_state.h"

namespace drun::rendezvous {
namespace {

// The rank that wrote these lines; nullopt if the member cannot send them.
std::optional<LinesFrom> source_of(const RoundState& state, Peer peer, const Lines& lines) {
  const auto seat = state.node_of.find(peer);
  if (seat == state.node_of.end() || lines.round != state.round) return std::nullopt;
  const RoundNode& node = node_at(state, seat->second);
  if (lines.local_rank >= node.hello.local_world_size) return std::nullopt;
  int before = 0;
  const RoleShare* share = share_at(node.hello.roles, lines.local_rank, before);
  return LinesFrom{.peer = peer,
                   .node_rank = seat->second,
                   .rank = node.base_rank + lines.local_rank,
                   .host = node.hello.host,
                   .role = share == nullptr ? node.hello.role : share->role};
}

}  // namespace

bool LogCollector::take(const RoundState& state, Peer peer, Lines lines) {
  const std::optional<LinesFrom> from = source_of(state, peer, lines);
  if (!from || sink_ == nullptr || !ledger_.accept(peer, cost_bytes(lines))) return false;
  sink_->on_lines(*from, std::move(lines));
  return true;
}

void LogCollector::forget(Peer peer) {
  if (ledger_.forget(peer) && sink_ != nullptr) sink_->on_lines_end(peer);
}

}  // namespace drun::rendezvous
