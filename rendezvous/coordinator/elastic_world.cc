#include "rendezvous/coordinator/elastic_world.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/coordinator/node_numbering.h"

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostSpares = 4096;
constexpr int kMostDoublings = 6;
constexpr std::size_t kMostNamed = 8;

const ElasticSpec& elastic(const RoundState& state) {
  assert(state.spec.elastic);
  return *state.spec.elastic;
}

Time::duration uptime_needed(const RoundState& state, int losses) {
  const int doublings = std::clamp(losses - 1, 0, kMostDoublings);
  return elastic(state).min_uptime * (1 << doublings);
}

int losses_of(const RoundState& state, const Candidate& candidate) {
  const auto found = state.known.find(candidate.id);
  return found == state.known.end() ? 0 : found->second.losses;
}

bool has_settled(const RoundState& state, const Candidate& candidate, Time now) {
  return now - candidate.since >= uptime_needed(state, losses_of(state, candidate));
}

// Whether the agent may join a world that begins in any case.
bool is_eligible(const RoundState& state, const Candidate& candidate, Time now) {
  return candidate.stays || losses_of(state, candidate) == 0 || has_settled(state, candidate, now);
}

// Drops the records of agents that have left once there are too many.
void forget_some(RoundState& state) {
  if (state.known.size() <= 2 * most_in_line(state)) return;
  std::erase_if(state.known, [](const auto& entry) { return !entry.second.peer; });
}

Applicant applicant_of(const RoundState& state, const Candidate& candidate) {
  const auto found = state.known.find(candidate.id);
  return {.host = candidate.hello.host,
          .slot = candidate.hello.slot,
          .arrival = candidate.arrival,
          .is_coordinator = candidate.hello.is_coordinator,
          .stays = candidate.stays,
          .last_rank = found == state.known.end() ? std::nullopt : found->second.rank};
}

}  // namespace

AgentId agent_id(const Hello& hello, std::string_view address) {
  const std::string_view from = address.substr(0, address.rfind(':'));
  return {hello.host + " at " + std::string(from), hello.slot};
}

std::size_t most_in_line(const RoundState& state) {
  return kMostSpares + static_cast<std::size_t>(state.spec.node_count);
}

std::optional<Peer> stand_in_line(RoundState& state, Peer peer, const Hello& hello,
                                  const AgentId& id, Time now) {
  forget_some(state);
  KnownAgent& self = state.known[id];
  const std::optional<Peer> before = std::exchange(self.peer, peer);
  Candidate candidate{.id = id,
                      .hello = hello,
                      .heard = now,
                      .since = now,
                      .arrival = ++state.arrivals,
                      .stays = false};
  if (before) {
    if (const auto old = state.line.find(*before); old != state.line.end()) {
      candidate.arrival = old->second.arrival;
      candidate.stays = old->second.stays && old->second.hello.instance == hello.instance;
      leave_line(state, *before);
      self.peer = peer;
    }
  }
  state.line_workers += hello.local_world_size;
  state.line.emplace(peer, std::move(candidate));
  return before;
}

void leave_line(RoundState& state, Peer peer) {
  const auto found = state.line.find(peer);
  if (found == state.line.end()) return;
  state.line_workers -= found->second.hello.local_world_size;
  if (const auto known = state.known.find(found->second.id);
      known != state.known.end() && known->second.peer == peer)
    known->second.peer.reset();
  state.line.erase(found);
}

void note_leaving(RoundState& state, const RoundNode& node) {
  const auto known = state.known.find(node.id);
  if (known != state.known.end() && known->second.peer == node.peer) known->second.peer.reset();
}

void note_loss(RoundState& state, const RoundNode& node, Time now) {
  note_leaving(state, node);
  KnownAgent& self = state.known[node.id];
  const bool was_steady = now - node.since >= uptime_needed(state, kMostDoublings + 1);
  self.losses = was_steady ? 1 : std::min(self.losses + 1, kMostDoublings + 1);
}

std::vector<Peer> next_nodes(const RoundState& state, Time now) {
  std::vector<std::pair<const Candidate*, Peer>> eligible;
  for (const auto& [peer, candidate] : state.line) {
    if (is_eligible(state, candidate, now)) eligible.emplace_back(&candidate, peer);
  }
  std::sort(eligible.begin(), eligible.end(), [](const auto& left, const auto& right) {
    const Candidate& one = *left.first;
    const Candidate& other = *right.first;
    if (one.hello.is_coordinator != other.hello.is_coordinator) return one.hello.is_coordinator;
    if (one.stays != other.stays) return one.stays;
    return one.arrival < other.arrival;
  });
  if (eligible.empty() || !eligible.front().first->hello.is_coordinator) return {};
  const std::size_t most = static_cast<std::size_t>(state.spec.node_count);
  if (eligible.size() > most) eligible.resize(most);
  std::vector<Peer> peers;
  peers.reserve(eligible.size());
  for (const auto& [candidate, peer] : eligible) peers.push_back(peer);
  return peers;
}

bool has_joiner(const RoundState& state, Time now) {
  if (state.phase != RoundPhase::Running || state.present_count >= state.spec.node_count)
    return false;
  // A world in which workers have returned 0 is about to end.
  if (state.pending_count < static_cast<int>(state.nodes.size())) return false;
  return std::any_of(state.line.begin(), state.line.end(),
                     [&](const auto& entry) { return has_settled(state, entry.second, now); });
}

int nodes_without(const RoundState& state, int node, Time now) {
  int left = 0;
  for (std::size_t i = 0; i < state.nodes.size(); ++i) {
    const RoundNode& other = state.nodes[i];
    const bool stays = other.presence == RoundNode::Presence::Present && !other.leave_signal;
    left += stays && static_cast<int>(i) != node ? 1 : 0;
  }
  for (const auto& [peer, candidate] : state.line)
    left += is_eligible(state, candidate, now) ? 1 : 0;
  return std::min(left, state.spec.node_count);
}

void take_seats(RoundState& state, const std::vector<Peer>& peers) {
  std::vector<Applicant> applicants;
  applicants.reserve(peers.size());
  for (const Peer peer : peers) applicants.push_back(applicant_of(state, state.line.at(peer)));
  // Node ranks of worlds before the last one no longer count.
  for (auto& [id, self] : state.known) self.rank.reset();
  state.nodes.clear();
  state.node_of.clear();
  state.world_size = 0;
  for (const std::size_t index : number_nodes(applicants, elastic(state).rank_order)) {
    const Peer peer = peers[index];
    const Candidate candidate = state.line.at(peer);
    const int rank = static_cast<int>(state.nodes.size());
    leave_line(state, peer);
    state.known[candidate.id] = {.peer = peer, .rank = rank, .losses = losses_of(state, candidate)};
    state.nodes.push_back(RoundNode{.presence = RoundNode::Presence::Present,
                                    .peer = peer,
                                    .heard = candidate.heard,
                                    .hello = candidate.hello,
                                    .id = candidate.id,
                                    .since = candidate.since,
                                    .arrival = candidate.arrival,
                                    .times = candidate.times,
                                    .times_at = candidate.times_at});
    state.node_of[peer] = rank;
    state.world_size += candidate.hello.local_world_size;
  }
  state.present_count = static_cast<int>(state.nodes.size());
}

void leave_seats(RoundState& state) {
  for (const RoundNode& node : state.nodes) {
    if (node.presence != RoundNode::Presence::Present) continue;
    state.line_workers += node.hello.local_world_size;
    state.line.emplace(node.peer, Candidate{.id = node.id,
                                            .hello = node.hello,
                                            .heard = node.heard,
                                            .since = node.since,
                                            .arrival = node.arrival,
                                            .stays = true,
                                            .times = node.times,
                                            .times_at = node.times_at});
  }
  state.nodes.clear();
  state.node_of.clear();
  state.present_count = 0;
  state.world_size = 0;
}

Waiting elastic_roll(const RoundState& state, bool is_spare, Time now) {
  Waiting waiting{.node_count = state.spec.node_count,
                  .min_node_count = elastic(state).min_nodes,
                  .is_spare = is_spare};
  if (is_spare) {
    waiting.joined_count = state.present_count;
    return waiting;
  }
  waiting.joined_count = static_cast<int>(state.line.size());
  for (const auto& [peer, candidate] : state.line) {
    if (waiting.joined.size() == kMostNamed) break;
    waiting.joined.push_back({0, candidate.hello.host});
  }
  const Time until = state.last_call.value_or(state.opened + state.spec.join_timeout);
  waiting.left = std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(until - now));
  return waiting;
}

}  // namespace drun::rendezvous
