#include "rendezvous/coordinator/query_results.h"

#include <algorithm>
#include <utility>

#include "rendezvous/coordinator/rank_assignment.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/protocol/control_wire.h"
#include "rendezvous/protocol/membership_text.h"
#include "rendezvous/protocol/message_layouts.h"

namespace drun::rendezvous {
namespace {

using Presence = RoundNode::Presence;

constexpr std::size_t kNodeBytes = 48;  // of a CensusNode without its texts

Milliseconds since(Time then, Time now) {
  return std::chrono::duration_cast<Milliseconds>(std::max(now - then, Time::duration(0)));
}

JobPhase phase_of(const RoundState& state) {
  switch (state.phase) {
    case RoundPhase::Joining:
      return JobPhase::Joining;
    case RoundPhase::Running:
      return JobPhase::Running;
    case RoundPhase::Stopping:
      return JobPhase::Stopping;
    case RoundPhase::Pausing:
      return JobPhase::Pausing;
    case RoundPhase::Ending:
    case RoundPhase::Over:
      break;
  }
  return JobPhase::Finishing;
}

void add_answer(CensusNode& node, const OpenQuery& query, Peer peer) {
  const auto answer = query.answers.find(peer);
  if (answer != query.answers.end())
    node.answer = answer->second;
  else
    node.presence = query.missing.contains(peer) ? NodePresence::Asked : NodePresence::Coming;
}

CensusNode node_of(const RoundState& state, const OpenQuery& query, int rank, Time now) {
  const RoundNode& self = state.nodes[static_cast<std::size_t>(rank)];
  CensusNode node{.node_rank = rank,
                  .host = self.hello.host,
                  .workers = self.hello.local_world_size,
                  .heard = since(self.heard, now)};
  if (self.presence == Presence::Present)
    add_answer(node, query, self.peer);
  else
    node.presence = NodePresence::Lost;
  return node;
}

void add(Census& census, std::size_t& bytes, CensusNode node) {
  bytes += kNodeBytes + std::min(node.host.size(), kNameBytes) + node.answer.size();
  if (bytes > kMostCensusBytes || census.nodes.size() >= kMostCensusNodes)
    ++census.nodes_not_listed;
  else
    census.nodes.push_back(std::move(node));
}

std::string name_of(const RoundState& state, int node) {
  return node_text(node, state.nodes[static_cast<std::size_t>(node)].hello.host);
}

// The node that has the log files of this rank: its own, or the one that gathers all lines.
std::optional<int> node_with_log(const RoundState& state, int rank) {
  const auto& nodes = state.nodes;
  const auto after =
      std::upper_bound(nodes.begin(), nodes.end(), rank,
                       [](int wanted, const RoundNode& node) { return wanted < node.base_rank; });
  if (after == nodes.begin()) return std::nullopt;
  auto found = std::prev(after);
  if (rank >= found->base_rank + found->hello.local_world_size) return std::nullopt;
  if (state.spec.line_window_bytes > 0) {
    found = std::find_if(nodes.begin(), nodes.end(),
                         [](const RoundNode& node) { return node.hello.is_coordinator; });
    if (found == nodes.end()) found = nodes.begin();  // in a fixed world it is node 0
  }
  return static_cast<int>(found - nodes.begin());
}

// Which nodes have not answered, and why.
std::vector<std::string> missing_notes(const RoundState& state, const OpenQuery& query) {
  std::vector<std::string> notes = query.lost;
  if (query.missing.empty()) return notes;
  for (int node = 0; node < static_cast<int>(state.nodes.size()); ++node) {
    if (query.missing.contains(state.nodes[static_cast<std::size_t>(node)].peer))
      notes.push_back(name_of(state, node) + ": no answer in " +
                      std::to_string(rules_of(query.kind).limit.count()) + " s");
  }
  return notes;
}

}  // namespace

std::vector<Peer> seated_peers(const RoundState& state) {
  std::vector<Peer> peers;
  for (const RoundNode& node : state.nodes) {
    if (node.presence == Presence::Present) peers.push_back(node.peer);
  }
  return peers;
}

std::vector<Peer> all_peers(const RoundState& state) {
  std::vector<Peer> peers = seated_peers(state);
  for (const auto& [peer, candidate] : state.line) peers.push_back(peer);
  return peers;
}

Result<std::vector<Peer>> peers_asked(const RoundState& state, const Query& query) {
  const auto refusal = [](std::string reason) { return Error{ErrorCode::Refused, reason}; };
  const bool has_world = state.phase == RoundPhase::Running || state.phase == RoundPhase::Stopping;
  switch (query.kind) {
    case QueryKind::Status: {
      // Nodes that have received the outcome do not answer.
      const bool has_ended = state.phase == RoundPhase::Ending || state.phase == RoundPhase::Over;
      return has_ended ? std::vector<Peer>() : all_peers(state);
    }
    case QueryKind::Stacks:
      if (!has_world) return refusal("no workers run");
      return seated_peers(state);
    case QueryKind::Log:
      break;
  }
  if (!has_world && state.phase != RoundPhase::Pausing) return refusal("no workers run");
  const std::optional<int> node = node_with_log(state, query.rank);
  if (!node) return refusal("there is no rank " + std::to_string(query.rank));
  const RoundNode& target = state.nodes[static_cast<std::size_t>(*node)];
  if (target.presence != Presence::Present) return refusal(name_of(state, *node) + " is lost");
  return std::vector<Peer>{target.peer};
}

QueryResult result_of(const RoundState& state, OpenQuery& query, Time now) {
  const std::vector<std::string> notes = missing_notes(state, query);
  QueryResult result;
  switch (query.kind) {
    case QueryKind::Status:
      result.answer = encode_census(census_of(state, query, now));
      break;
    case QueryKind::Stacks:
      for (const std::string& note : notes) query.stacks->add_note(note);
      result.answer = query.stacks->merged();
      break;
    case QueryKind::Log:
      if (query.answers.empty())
        result.note = notes.empty() ? "its node has not answered" : notes.front();
      else
        result.answer = std::move(query.answers.begin()->second);
      break;
  }
  return result;
}

JobFacts facts_of(const RoundState& state, Time now) {
  const int in_line = static_cast<int>(state.line.size());
  const bool is_joining = state.phase == RoundPhase::Joining;
  const int counted = restarts_counted(state.spec.restart, restarts_of_budget(state), now);
  JobFacts job{
      .endpoint = state.spec.endpoint,
      .phase = phase_of(state),
      .min_nodes = state.spec.elastic ? state.spec.elastic->min_nodes : state.spec.node_count,
      .max_nodes = state.spec.node_count,
      .joined_nodes = state.present_count + (is_joining ? in_line : 0),
      .spares = is_joining ? 0 : in_line,
      .is_preflight = !state.is_checked,
      .world_size = state.has_begun ? state.world_size : 0,
      .restarts = static_cast<int>(state.restarts.size()),
      .restarts_left = std::max(0, state.spec.max_restarts - counted),
      .max_restarts = state.spec.max_restarts,
      .up = since(state.first_world.value_or(state.opened), now),
      .last_failure = state.last_failure};
  if (state.has_begun) {
    job.round = state.round;
    job.round_up = since(state.round_began, now);
  }
  if (!state.failures.empty()) job.last_failure = brief(state.failures.first());
  job.left_out = all_left_out(state.exclusions);
  if (job.left_out.size() > kMostLeftOut) job.left_out.resize(kMostLeftOut);
  job.times = times_of(state, now, false);
  job.slow = state.slow_ranks.found();
  return job;
}

Census census_of(const RoundState& state, const OpenQuery& query, Time now) {
  Census census{.job = facts_of(state, now)};
  std::size_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(state.nodes.size()); ++rank) {
    const bool is_here = state.nodes[static_cast<std::size_t>(rank)].presence != Presence::Absent;
    if (is_here)
      add(census, bytes, node_of(state, query, rank, now));
    else if (census.missing_ranks.size() < kMostMissingTold)
      census.missing_ranks.push_back(rank);
  }
  for (const auto& [peer, candidate] : state.line) {
    CensusNode node{.host = candidate.hello.host,
                    .workers = candidate.hello.local_world_size,
                    .heard = since(candidate.heard, now)};
    add_answer(node, query, peer);
    add(census, bytes, std::move(node));
  }
  return census;
}

}  // namespace drun::rendezvous
