#include "launcher/plan/host_spread.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

namespace drun::hosts {
namespace {

Error bad(std::string reason) { return Error{ErrorCode::Usage, std::move(reason)}; }

bool is_counted(const PoolHost& host) { return host.slots || !host.devices.empty(); }

int slots_of(const PoolHost& host) {
  return host.devices.empty() ? host.slots.value_or(1) : static_cast<int>(host.devices.size());
}

std::int64_t all_slots(const Pool& pool) {
  return std::accumulate(
      pool.begin(), pool.end(), std::int64_t{0},
      [](std::int64_t sum, const PoolHost& host) { return sum + slots_of(host); });
}

// "node01 4, node02 4".
std::string slots_text(const Pool& pool) {
  std::string text;
  for (std::size_t i = 0; i < pool.size(); ++i) {
    if (i == kMostShownHosts) return text + ", ...";
    text += (i == 0 ? "" : ", ") + pool[i].name + " " + std::to_string(slots_of(pool[i]));
  }
  return text;
}

Error too_many(const Pool& pool, int np) {
  return bad("-np " + std::to_string(np) + ": the hosts have " + std::to_string(all_slots(pool)) +
             " slots (" + slots_text(pool) + "); add slots, such as " + pool.front().name +
             ":8, or set --oversubscribe");
}

// Fills the hosts in order, with at most `room` workers each.
std::vector<int> filled(const std::vector<int>& room, std::int64_t np) {
  std::vector<int> counts;
  for (const int each : room) {
    counts.push_back(static_cast<int>(std::min<std::int64_t>(each, np)));
    np -= counts.back();
  }
  return counts;
}

// Deals workers to the hosts in turn, with at most `room` each.
std::vector<int> dealt(const std::vector<int>& room, std::int64_t np) {
  std::vector<int> counts(room.size());
  while (np > 0) {
    const std::int64_t before = np;
    for (std::size_t i = 0; i < room.size() && np > 0; ++i) {
      if (counts[i] == room[i]) continue;
      ++counts[i];
      --np;
    }
    if (np == before) break;
  }
  return counts;
}

Result<std::vector<int>> counts_of_np(const Pool& pool, const SpreadRequest& wish) {
  std::vector<int> room;
  for (const PoolHost& host : pool) room.push_back(slots_of(host));
  const std::int64_t slots = all_slots(pool);
  if (*wish.np > slots && !wish.oversubscribe) return too_many(pool, *wish.np);
  const bool is_by_node = wish.map_by.order == MapBy::Order::Node;
  const std::int64_t within = std::min<std::int64_t>(*wish.np, slots);
  std::vector<int> counts = is_by_node ? dealt(room, within) : filled(room, within);
  const std::vector<int> beyond = dealt(std::vector<int>(pool.size(), *wish.np), *wish.np - within);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += beyond[i];
  return counts;
}

Result<std::vector<int>> counts_per_node(const Pool& pool, const SpreadRequest& wish,
                                         int per_node) {
  for (const PoolHost& host : pool) {
    if (!is_counted(host) || per_node <= slots_of(host) || wish.oversubscribe) continue;
    return bad(std::to_string(per_node) + " workers on each host: " + host.name + " has " +
               std::to_string(slots_of(host)) +
               " slots; reduce the number of workers, or set --oversubscribe");
  }
  const std::int64_t most = static_cast<std::int64_t>(per_node) * static_cast<int>(pool.size());
  if (wish.np && *wish.np > most)
    return bad("-np " + std::to_string(*wish.np) + ": " + std::to_string(per_node) +
               " on each of " + std::to_string(pool.size()) + " hosts are only " +
               std::to_string(most) + "; list more hosts, or change one of the options");
  return filled(std::vector<int>(pool.size(), per_node), wish.np.value_or(static_cast<int>(most)));
}

}  // namespace

Result<std::vector<Share>> spread(const Pool& pool, const SpreadRequest& wish) {
  const std::optional<int> per_node = wish.map_by.per_node ? wish.map_by.per_node : wish.per_node;
  if (wish.map_by.per_node &&
      (wish.has_per_node_word || (wish.per_node && *wish.per_node != *per_node)))
    return bad("--map-by=ppr and --nproc-per-node conflict; remove one");
  if (wish.np && wish.has_per_node_word)
    return bad("-np and --nproc-per-node=gpu (or auto, cpu) conflict; remove one");
  std::vector<Share> shares;
  if (!wish.np && !per_node) {
    for (const PoolHost& host : pool) {
      shares.push_back(
          {host, wish.has_per_node_word ? std::nullopt : std::optional(slots_of(host))});
    }
    return shares;
  }
  const Result<std::vector<int>> counts =
      per_node ? counts_per_node(pool, wish, *per_node) : counts_of_np(pool, wish);
  if (!counts) return counts.error();
  for (std::size_t i = 0; i < pool.size(); ++i)
    if ((*counts)[i] > 0) shares.push_back({pool[i], (*counts)[i]});
  return shares;
}

}  // namespace drun::hosts
