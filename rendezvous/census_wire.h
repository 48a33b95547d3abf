// core. The layout of a census (WIRE.md).
//
// Use:     by control_wire.cc.
#pragma once

#include <cstddef>

#include "rendezvous/census.h"
#include "rendezvous/outcome_wire.h"
#include "rendezvous/wire_fields.h"

namespace drun::rendezvous {

constexpr std::size_t kMostCensusNodes = 8192;
constexpr std::size_t kMostMissingTold = 64;

template <typename Archive, typename Enum>
void word(Archive& archive, Enum& value, Enum last) {
  auto number = static_cast<int>(value);
  archive.integer(number, {0, static_cast<int>(last)});
  value = static_cast<Enum>(number);
}

template <typename Archive>
void fields(Archive& archive, NodeSummary& summary) {
  word(archive, summary.phase, NodePhase::Waiting);
  archive.integer(summary.workers_running, kCount);
  archive.integer(summary.workers_failed, kCount);
  archive.duration(summary.up, kMostMilliseconds);
}

template <typename Archive>
void fields(Archive& archive, CensusNode& node) {
  optional_rank(archive, node.node_rank);
  archive.text(node.host, kNameBytes);
  archive.integer(node.workers, kCount);
  word(archive, node.presence, NodePresence::Lost);
  fields(archive, node.told);
  archive.duration(node.heard, kMostMilliseconds);
}

template <typename Archive>
void fields(Archive& archive, JobFacts& job) {
  archive.text(job.endpoint, kIdentityBytes);
  word(archive, job.phase, JobPhase::Finishing);
  for (int* count : {&job.least_nodes, &job.most_nodes, &job.joined_nodes, &job.spares})
    archive.integer(*count, kCount);
  optional_rank(archive, job.round);
  archive.flag(job.is_preflight);
  for (int* count : {&job.world_size, &job.restarts, &job.restarts_left, &job.max_restarts})
    archive.integer(*count, kCount);
  archive.duration(job.up, kMostMilliseconds);
  archive.duration(job.round_up, kMostMilliseconds);
  bool has_failed = job.last_failure.has_value();
  archive.flag(has_failed);
  if (has_failed)
    fields(archive, job.last_failure ? *job.last_failure : job.last_failure.emplace());
  archive.list(job.left_out, kMostLeftOut, [](auto& each, LeftOut& node) { fields(each, node); });
}

template <typename Archive>
void fields(Archive& archive, Census& census) {
  archive.text(census.note, kSentenceBytes);
  fields(archive, census.job);
  archive.list(census.nodes, kMostCensusNodes,
               [](auto& each, CensusNode& node) { fields(each, node); });
  archive.integer(census.nodes_not_listed, kCount);
  archive.list(census.missing_ranks, kMostMissingTold,
               [](auto& each, int& node_rank) { each.integer(node_rank, kCount); });
}

}  // namespace drun::rendezvous
