// core. Layouts of types that several messages share; each message's own layout is in
// control_wire.cc. docs/internals/wire.md describes them.
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/job/census.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/protocol/control_message.h"
#include "rendezvous/protocol/wire_fields.h"

namespace drun::rendezvous {

// --- Failures and outcomes

constexpr std::size_t kMessageBytes = std::size_t{8} << 10;
constexpr std::size_t kTracebackBytes = std::size_t{32} << 10;
constexpr std::size_t kTailLines = 20;
constexpr std::size_t kTailLineBytes = 2048;
constexpr std::size_t kMostLeftOut = 16;  // the first

template <typename Archive>
void fields(Archive& archive, Exited& exited) {
  archive.integer(exited.code, {0, 255});
}
template <typename Archive>
void fields(Archive& archive, Killed& killed) {
  archive.integer(killed.signal, kSignal);
  archive.flag(killed.core_dumped);
}
template <typename Archive>
void fields(Archive& archive, NotStarted& not_started) {
  archive.integer(not_started.error_number, {0, 4095});
}

template <typename Archive>
void fields(Archive& archive, Hung& hung) {
  archive.text(hung.how, kSentenceBytes);
}

template <typename Archive>
void fields(Archive& archive, Failure& failure) {
  archive.integer(failure.rank, kCount);
  archive.integer(failure.local_rank, kCount);
  archive.integer(failure.node_rank, kCount);
  archive.integer(failure.round, kCount);
  archive.text(failure.role, kNameBytes);
  archive.text(failure.host, kNameBytes);
  archive.integer(failure.pid, kPid);
  one_of(archive, failure.status, [](auto& each, auto& status) { fields(each, status); });
  moment(archive, failure.time);
  archive.flag(failure.out_of_memory);
  archive.text(failure.program, kIdentityBytes);
  archive.text(failure.error_file, kIdentityBytes);
  archive.text(failure.message, kMessageBytes);
  archive.text(failure.traceback, kTracebackBytes);
  archive.list(failure.stderr_tail, kTailLines,
               [](auto& each, std::string& line) { each.text(line, kTailLineBytes); });
  archive.text(failure.stderr_file, kIdentityBytes);
}

template <typename Archive>
void fields(Archive& archive, AgedFailure& aged) {
  fields(archive, aged.failure);
  archive.duration(aged.age, kMostMicroseconds);
}

template <typename Archive>
void fields(Archive& archive, Error& error) {
  archive.integer(error.code, {0, static_cast<int>(ErrorCode::System)});
  archive.text(error.message, kSentenceBytes);
}

// Endings.
template <typename Archive>
void fields(Archive&, Succeeded&) {}
template <typename Archive>
void fields(Archive& archive, WorkersFailed& failed) {
  archive.list(failed.failures, kMostFailures,
               [](auto& each, Failure& failure) { fields(each, failure); });
  if constexpr (Archive::kIsReader) {
    if (failed.failures.empty()) archive.fail();  // there is always a root cause
  }
}
template <typename Archive>
void fields(Archive& archive, Interrupted& interrupted) {
  archive.integer(interrupted.signal, kSignal);
  optional_rank(archive, interrupted.node_rank);
  archive.text(interrupted.host, kNameBytes);
}
template <typename Archive>
void fields(Archive& archive, NodeLost& lost) {
  archive.integer(lost.node_rank, kCount);
  archive.text(lost.host, kNameBytes);
  archive.flag(lost.is_coordinator);
  archive.text(lost.reason, kSentenceBytes);
}
template <typename Archive>
void fields(Archive& archive, Preempted& preempted) {
  archive.text(preempted.reason, kSentenceBytes);
}
template <typename Archive>
void fields(Archive& archive, NotRun& not_run) {
  fields(archive, not_run.error);
}

template <typename Archive>
void fields(Archive& archive, PhaseTimes& times) {
  for (auto& time : times) archive.duration(time, kMostMilliseconds);
}
template <typename Archive>
void fields(Archive& archive, NodeTimes& times) {
  fields(archive, times.phases);
  archive.integer(times.current, {0, kPhaseCount - 1});
  optional_rank(archive, times.slowest_start);
  archive.duration(times.slowest_start_time, kMostMilliseconds);
}
template <typename Archive>
void fields(Archive& archive, JobTimes& times) {
  archive.integer(times.nodes, kCount);
  fields(archive, times.mean);
  for (LongestTime& longest : times.longest) {
    archive.duration(longest.time, kMostMilliseconds);
    archive.integer(longest.node_rank, kCount);
    optional_rank(archive, longest.rank);
  }
}

template <typename Archive>
void fields(Archive& archive, SlowRank& slow) {
  optional_rank(archive, slow.rank);
  archive.integer(slow.node_rank, kCount);
  archive.text(slow.host, kNameBytes);
  archive.integer(slow.round, kCount);
  archive.integer(slow.percent, kCount);
  archive.text(slow.evidence, kSentenceBytes);
  archive.flag(slow.is_slow);
}

template <typename Archive>
void fields(Archive& archive, LeftOut& node) {
  archive.integer(node.node_rank, kCount);
  archive.text(node.host, kNameBytes);
  archive.integer(node.round, kCount);
  archive.text(node.reason, kSentenceBytes);
}
template <typename Archive>
void fields(Archive& archive, Outcome& outcome) {
  one_of(archive, outcome.ending, [](auto& each, auto& ending) { fields(each, ending); });
  archive.text(outcome.run_id, kIdentityBytes);
  archive.integer(outcome.node_count, kCount);
  archive.integer(outcome.world_size, kCount);
  archive.integer(outcome.restarts, kCount);
  archive.integer(outcome.max_restarts, kCount);
  archive.integer(outcome.failures_left_out, kCount);
  archive.duration(outcome.duration, kMostMilliseconds);
  archive.list(outcome.left_out, kMostLeftOut,
               [](auto& each, LeftOut& node) { fields(each, node); });
  fields(archive, outcome.times);
  archive.list(outcome.slow, kMostSlowRanks,
               [](auto& each, SlowRank& slow) { fields(each, slow); });
}

// --- Census

constexpr std::size_t kMostCensusNodes = 8192;
constexpr std::size_t kMostMissingTold = 64;

template <typename Archive>
void fields(Archive& archive, CensusNode& node) {
  optional_rank(archive, node.node_rank);
  archive.text(node.host, kNameBytes);
  archive.integer(node.workers, kCount);
  word(archive, node.presence, NodePresence::Lost);
  archive.text(node.answer, kMostStatusBytes);
  archive.duration(node.heard, kMostMilliseconds);
}

template <typename Archive>
void fields(Archive& archive, JobFacts& job) {
  archive.text(job.endpoint, kIdentityBytes);
  word(archive, job.phase, JobPhase::Finishing);
  for (int* count : {&job.min_nodes, &job.max_nodes, &job.joined_nodes, &job.spares})
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
  fields(archive, job.times);
  archive.list(job.slow, kMostSlowRanks, [](auto& each, SlowRank& slow) { fields(each, slow); });
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
