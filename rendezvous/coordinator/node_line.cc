#include "rendezvous/coordinator/node_line.h"

#include <algorithm>
#include <compare>
#include <numeric>
#include <utility>

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMostSpares = 4096;
constexpr int kMostDoublings = 6;
constexpr std::size_t kMostJoinedNamed = 8;
constexpr std::size_t kMostMissingNamed = 16;

AgentId pinned_id(int node_rank) { return {"", node_rank}; }

Time::duration uptime_needed(const RoundState& state, int losses) {
  const int doublings = std::clamp(losses - 1, 0, kMostDoublings);
  return state.rules.min_uptime * (1 << doublings);
}

int losses_of(const RoundState& state, const JoinedNode& candidate) {
  const auto found = state.known.find(candidate.id);
  return found == state.known.end() ? 0 : found->second.losses;
}

bool has_settled(const RoundState& state, const JoinedNode& candidate, Time now) {
  return now - candidate.since >= uptime_needed(state, losses_of(state, candidate));
}

// Whether the agent may join a world that begins in any case.
bool is_eligible(const RoundState& state, const JoinedNode& candidate, Time now) {
  return candidate.stays || losses_of(state, candidate) == 0 || has_settled(state, candidate, now);
}

// Drops the records of agents that have left once there are too many.
void forget_some(RoundState& state) {
  if (state.known.size() <= 2 * most_in_line(state)) return;
  std::erase_if(state.known, [](const auto& entry) { return !entry.second.peer; });
}

Applicant applicant_of(const RoundState& state, const JoinedNode& candidate) {
  return {.host = candidate.hello.host,
          .slot = candidate.hello.slot,
          .arrival = candidate.arrival,
          .is_coordinator = candidate.hello.is_coordinator,
          .stays = candidate.stays,
          .last_rank = rank_of(state, candidate)};
}

}  // namespace

AgentId agent_id(const Hello& hello, std::string_view address) {
  if (hello.node_rank) return pinned_id(*hello.node_rank);
  const std::string_view from = address.substr(0, address.rfind(':'));
  return {hello.host + " at " + std::string(from), hello.slot};
}

std::size_t most_in_line(const RoundState& state) {
  return kMostSpares + static_cast<std::size_t>(state.rules.max_nodes);
}

std::optional<Peer> stand_in_line(RoundState& state, Peer peer, const Hello& hello,
                                  const AgentId& id, Time now) {
  forget_some(state);
  KnownAgent& self = state.known[id];
  const std::optional<Peer> before = std::exchange(self.peer, peer);
  JoinedNode candidate{.id = id,
                       .peer = peer,
                       .hello = hello,
                       .heard = now,
                       .since = now,
                       .arrival = ++state.arrivals};
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

std::optional<int> rank_of(const RoundState& state, const JoinedNode& node) {
  if (node.hello.node_rank) return node.hello.node_rank;
  const auto known = state.known.find(node.id);
  return known == state.known.end() ? std::nullopt : known->second.rank;
}

const JoinedNode* holder_of(const RoundState& state, int node_rank) {
  if (!state.nodes.empty()) return &node_at(state, node_rank);
  const auto known = state.known.find(pinned_id(node_rank));
  if (known == state.known.end() || !known->second.peer) return nullptr;
  return &state.line.at(*known->second.peer);
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
  std::vector<std::pair<const JoinedNode*, Peer>> eligible;
  for (const auto& [peer, candidate] : state.line) {
    if (is_eligible(state, candidate, now)) eligible.emplace_back(&candidate, peer);
  }
  std::sort(eligible.begin(), eligible.end(), [](const auto& left, const auto& right) {
    const JoinedNode& one = *left.first;
    const JoinedNode& other = *right.first;
    if (one.hello.is_coordinator != other.hello.is_coordinator) return one.hello.is_coordinator;
    if (one.stays != other.stays) return one.stays;
    return one.arrival < other.arrival;
  });
  if (eligible.empty() || !eligible.front().first->hello.is_coordinator) return {};
  const std::size_t most = static_cast<std::size_t>(state.rules.max_nodes);
  if (eligible.size() > most) eligible.resize(most);
  std::vector<Peer> peers;
  peers.reserve(eligible.size());
  for (const auto& [candidate, peer] : eligible) peers.push_back(peer);
  return peers;
}

bool has_joiner(const RoundState& state, Time now) {
  if (state.phase != RoundPhase::Running || state.present_count >= state.rules.max_nodes)
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
    const bool stays = !other.is_lost && !other.leave_signal;
    left += stays && static_cast<int>(i) != node ? 1 : 0;
  }
  for (const auto& [peer, candidate] : state.line)
    left += is_eligible(state, candidate, now) ? 1 : 0;
  return std::min(left, state.rules.max_nodes);
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
  for (const std::size_t index : number_nodes(applicants, state.rules.rank_order)) {
    const Peer peer = peers[index];
    const JoinedNode node = state.line.at(peer);
    const int rank = static_cast<int>(state.nodes.size());
    leave_line(state, peer);
    state.known[node.id] = {.peer = peer, .rank = rank, .losses = losses_of(state, node)};
    state.nodes.push_back(RoundNode{node});
    state.node_of[peer] = rank;
    state.world_size += node.hello.local_world_size;
  }
  state.present_count = static_cast<int>(state.nodes.size());
}

void leave_seats(RoundState& state) {
  for (const RoundNode& node : state.nodes) {
    if (node.is_lost) continue;
    state.line_workers += node.hello.local_world_size;
    state.line.emplace(node.peer, node).first->second.stays = true;
  }
  state.nodes.clear();
  state.node_of.clear();
  state.present_count = 0;
  state.world_size = 0;
}

Waiting roll(const RoundState& state, Time now) {
  const WorldRules& rules = state.rules;
  Waiting waiting{.node_count = rules.max_nodes,
                  .joined_count = static_cast<int>(state.line.size())};
  for (const JoinedNode* node : line_in_order(state)) {
    if (waiting.joined.size() == kMostJoinedNamed) break;
    waiting.joined.push_back({node->hello.node_rank.value_or(0), node->hello.host});
  }
  if (rules.pins_ranks) {
    waiting.missing = missing_ranks(state, kMostMissingNamed);
    return waiting;
  }
  waiting.min_node_count = rules.min_nodes;
  const Time until = state.last_call.value_or(state.opened + state.spec.join_timeout);
  waiting.left = std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(until - now));
  return waiting;
}

Waiting roll_for_spares(const RoundState& state) {
  return {.node_count = state.rules.max_nodes,
          .joined_count = state.present_count,
          .min_node_count = state.rules.min_nodes,
          .is_spare = true};
}

std::vector<int> missing_ranks(const RoundState& state, std::size_t most) {
  std::vector<int> missing;
  if (!state.rules.pins_ranks || !state.nodes.empty()) return missing;
  int rank = 0;
  const auto skip_to = [&](int next) {
    for (; rank < next && missing.size() < most; ++rank) missing.push_back(rank);
    rank = next + 1;
  };
  for (const JoinedNode* node : line_in_order(state)) skip_to(*node->hello.node_rank);
  skip_to(state.rules.max_nodes);
  return missing;
}

// --- The assignment of node ranks

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes the run of digits at the front, and returns it without leading zeros.
std::string_view take_number(std::string_view& text) {
  const std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789"));
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  digits.remove_prefix(std::min(digits.size(), digits.find_first_not_of('0')));
  return digits;
}

// Orders node2 before node10: runs of digits compare as numbers, the rest as bytes.
std::strong_ordering compare_naturally(std::string_view left, std::string_view right) {
  while (!left.empty() && !right.empty()) {
    if (is_digit(left.front()) && is_digit(right.front())) {
      const std::string_view one = take_number(left);
      const std::string_view other = take_number(right);
      if (const auto by_length = one.size() <=> other.size(); std::is_neq(by_length))
        return by_length;
      if (const auto by_digits = one.compare(other); by_digits != 0) return by_digits <=> 0;
      continue;
    }
    if (left.front() != right.front()) return left.front() <=> right.front();
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  return left.size() <=> right.size();
}

bool has_number(const Applicant& applicant) {
  return std::any_of(applicant.host.begin(), applicant.host.end(), is_digit);
}

// The order of all applicants as if they were new.
std::vector<std::size_t> newcomers_order(std::span<const Applicant> applicants, RankOrder order) {
  const bool is_natural = order == RankOrder::Natural ||
                          (order == RankOrder::Endpoint &&
                           std::all_of(applicants.begin(), applicants.end(), has_number));
  std::vector<std::size_t> sorted(applicants.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t left, std::size_t right) {
    const Applicant& one = applicants[left];
    const Applicant& other = applicants[right];
    if (order == RankOrder::Endpoint && one.is_coordinator != other.is_coordinator)
      return one.is_coordinator;
    if (!is_natural) return one.arrival < other.arrival;
    if (const auto by_name = compare_naturally(one.host, other.host); std::is_neq(by_name))
      return std::is_lt(by_name);
    return one.slot != other.slot ? one.slot < other.slot : one.arrival < other.arrival;
  });
  return sorted;
}

// Node ranks. Each is assigned once.
class Seats {
 public:
  explicit Seats(std::size_t count) : taken_(count) {}
  bool take(std::optional<int> wanted, std::size_t applicant) {
    if (!wanted || *wanted < 0 || static_cast<std::size_t>(*wanted) >= taken_.size()) return false;
    auto& seat = taken_[static_cast<std::size_t>(*wanted)];
    if (seat) return false;
    seat = applicant;
    return true;
  }
  void take_next(std::size_t applicant) {
    while (taken_[next_]) ++next_;
    taken_[next_] = applicant;
  }
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> order;
    for (const auto& seat : taken_) order.push_back(seat.value_or(0));
    return order;
  }

 private:
  std::vector<std::optional<std::size_t>> taken_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<std::size_t> number_nodes(std::span<const Applicant> applicants, RankOrder order) {
  Seats seats(applicants.size());
  std::vector<std::size_t> left = newcomers_order(applicants, order);
  const auto seat = [&](bool stays) {
    std::erase_if(left, [&](std::size_t each) {
      const Applicant& applicant = applicants[each];
      return applicant.stays == stays && seats.take(applicant.last_rank, each);
    });
  };
  seat(true);
  seat(false);
  std::stable_sort(left.begin(), left.end(), [&](std::size_t one, std::size_t other) {
    const Applicant& first = applicants[one];
    const Applicant& second = applicants[other];
    if (first.stays != second.stays) return first.stays;
    return first.stays && first.last_rank < second.last_rank;
  });
  for (const std::size_t each : left) seats.take_next(each);
  return seats.order();
}

}  // namespace drun::rendezvous
