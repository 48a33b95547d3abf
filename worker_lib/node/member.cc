#include "worker_lib/node/member.h"

#include <algorithm>
#include <utility>

#include "worker_lib/node/node_layout.h"

namespace drun::worker {

Member connect_member(const BackendContext& group, std::vector<int> ranks, std::string name,
                      std::string what, const BackendFactory& factory) {
  BackendContext context = group;
  const auto me = std::find(ranks.begin(), ranks.end(), group.rank);
  context.rank = static_cast<int>(me - ranks.begin());
  context.size = static_cast<int>(ranks.size());
  context.is_debug = false;  // compared by the group as a whole
  context.node_of = nodes_among(group.node_of, ranks);
  if (group.store) context.store = make_prefix_key_store(std::move(name), group.store);
  if (group.ended_rank) {
    context.ended_rank = [ended = group.ended_rank, ranks](const std::vector<int>& asked) {
      const auto has_ended = [&](int rank) {
        return ended({ranks[static_cast<std::size_t>(rank)]}).has_value();
      };
      const auto found = std::find_if(asked.begin(), asked.end(), has_ended);
      return found == asked.end() ? std::nullopt : std::optional<int>(*found);
    };
  }
  Member member{.backend = nullptr, .ranks = std::move(ranks), .what = std::move(what)};
  member.backend = within(member, [&] { return factory(context); });
  return member;
}

BackendFailure translated(const Member& member, const BackendFailure& failure) {
  const std::string message =
      "among " + member.what + " (numbered from 0 there): " + failure.what();
  const bool is_known =
      failure.peer && *failure.peer >= 0 && *failure.peer < static_cast<int>(member.ranks.size());
  if (!is_known) return {failure.kind, std::nullopt, message, failure.has_peer_ended};
  const int peer = member.ranks[static_cast<std::size_t>(*failure.peer)];
  return {failure.kind, peer, "because of rank " + std::to_string(peer) + ", " + message,
          failure.has_peer_ended};
}

}  // namespace drun::worker
