#include "launcher/report/timeline_views.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

namespace drun {
namespace {

using timeline::Job;

// "node 1 (gpu1) was lost: no heartbeat for 10 s"
NodeLost lost_node_of(const std::string& message) {
  constexpr std::string_view kNode = "node ";
  constexpr std::string_view kLost = ") was lost: ";
  NodeLost lost;
  lost.reason = message;
  const std::size_t open = message.find(" (");
  const std::size_t close = message.find(kLost);
  if (!message.starts_with(kNode) || open > close || close == message.npos) return lost;
  lost.node_rank = std::max(0, std::atoi(message.c_str() + kNode.size()));
  lost.host = message.substr(open + 2, close - open - 2);
  lost.reason = message.substr(close + kLost.size());
  return lost;
}

}  // namespace

std::string title_of(agent::FaultClass fault) {
  switch (fault) {
    case agent::FaultClass::HostMemory:
      return "out of memory on the host";
    case agent::FaultClass::GpuMemory:
      return "out of memory on a GPU";
    case agent::FaultClass::MissingRank:
      return "missing rank";
    case agent::FaultClass::DataLoader:
      return "data loader";
    case agent::FaultClass::UserError:
      return "error at start-up";
    default:
      return word_of(fault);
  }
}

std::string advice_text(const agent::Diagnosis& diagnosis) {
  switch (diagnosis.restart_helps) {
    case agent::RestartHelps::Yes:
      return "a restart can help; " + diagnosis.advice;
    case agent::RestartHelps::No:
      return "a restart does not help; " + diagnosis.advice;
    case agent::RestartHelps::Unknown:
      break;
  }
  return diagnosis.advice;
}

agent::Diagnosis diagnosis_of(const Job& job) {
  if (job.diagnosis) return *job.diagnosis;
  Outcome outcome;
  outcome.world_size = job.world_size;
  outcome.node_count = job.node_count;
  outcome.restarts = job.restarts;
  agent::Observations observations;
  if (!job.rounds.empty()) {
    const timeline::Round& last = job.rounds.back();
    observations.round_ran = std::chrono::milliseconds(
        static_cast<long long>(std::clamp((last.end_s - last.begin_s) * 1000, 0.0, 1e15)));
  }
  if (job.outcome == "interrupted") {
    agent::Diagnosis diagnosis = agent::diagnose({.ending = Interrupted{}});
    diagnosis.summary = job.message;
    diagnosis.evidence = {job.message};
    return diagnosis;
  }
  if (job.outcome == "preempted") return agent::diagnose({.ending = Preempted{job.message}});
  if (job.outcome == "node_lost") return agent::diagnose({.ending = lost_node_of(job.message)});
  if (job.outcome != "failed" && job.outcome != "unknown") return {};
  WorkersFailed failed;
  if (job.root_cause) failed.failures.push_back(*job.root_cause);
  for (std::size_t i = 1; i < job.failures.size(); ++i) failed.failures.push_back(job.failures[i]);
  if (failed.failures.empty()) return {};
  if (!job.hang_stacks.empty() && failed.failures.front().traceback.size() < job.hang_stacks.size())
    failed.failures.front().traceback = job.hang_stacks;
  outcome.ending = std::move(failed);
  return agent::diagnose(outcome, observations);
}

}  // namespace drun
