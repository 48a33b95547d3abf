#include "rendezvous/coordinator/census_summary.h"

#include <algorithm>
#include <utility>

#include "rendezvous/coordinator/rank_assignment.h"
#include "rendezvous/job/job_record.h"
#include "rendezvous/job/restart_policy.h"
#include "rendezvous/protocol/message_layouts.h"

namespace drun::rendezvous {
namespace {

using Presence = RoundNode::Presence;

constexpr std::size_t kNodeBytes = 88;  // of a CensusNode without its host name

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

void tell(CensusNode& node, const RoundState& state, Peer peer) {
  const CensusQuery& census = state.census;
  const auto answer = census.answers.find(peer);
  if (answer != census.answers.end())
    node.told = answer->second;
  else
    node.presence = census.missing.contains(peer) ? NodePresence::Asked : NodePresence::Coming;
}

CensusNode node_of(const RoundState& state, int rank, Time now) {
  const RoundNode& self = state.nodes[static_cast<std::size_t>(rank)];
  CensusNode node{.node_rank = rank,
                  .host = self.hello.host,
                  .workers = self.hello.local_world_size,
                  .heard = since(self.heard, now)};
  if (self.presence == Presence::Present)
    tell(node, state, self.peer);
  else
    node.presence = NodePresence::Lost;
  return node;
}

void add(Census& census, std::size_t& bytes, CensusNode node) {
  bytes += kNodeBytes + std::min(node.host.size(), kNameBytes);
  if (bytes > kMostCensusBytes || census.nodes.size() >= kMostCensusNodes)
    ++census.nodes_not_listed;
  else
    census.nodes.push_back(std::move(node));
}

}  // namespace

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

Census census_of(const RoundState& state, Time now) {
  Census census{.job = facts_of(state, now)};
  std::size_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(state.nodes.size()); ++rank) {
    const bool is_here = state.nodes[static_cast<std::size_t>(rank)].presence != Presence::Absent;
    if (is_here)
      add(census, bytes, node_of(state, rank, now));
    else if (census.missing_ranks.size() < kMostMissingTold)
      census.missing_ranks.push_back(rank);
  }
  for (const auto& [peer, candidate] : state.line) {
    CensusNode node{.host = candidate.hello.host,
                    .workers = candidate.hello.local_world_size,
                    .heard = since(candidate.heard, now)};
    tell(node, state, peer);
    add(census, bytes, std::move(node));
  }
  return census;
}

std::vector<Peer> census_peers(const RoundState& state) {
  std::vector<Peer> peers;
  for (const RoundNode& node : state.nodes) {
    if (node.presence == Presence::Present) peers.push_back(node.peer);
  }
  for (const auto& [peer, candidate] : state.line) peers.push_back(peer);
  return peers;
}

}  // namespace drun::rendezvous
