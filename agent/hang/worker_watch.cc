#include "agent/hang/worker_watch.h"

#include <algorithm>
#include <utility>

#include "agent/diagnosis/gpu_faults.h"
#include "agent/hang/worker_evidence.h"

namespace drun::agent {

WorkerWatch::WorkerWatch(asio::io_context& io, const Log& log, const AgentSpec& spec,
                         std::span<const std::string> environment, Output& output)
    : ras_(io, log, spec),
      hangs_(io, spec.hang_timeout, output, ras_),
      flights_(io, log, spec),
      collector_(io, environment),
      look_(io, ras_, flights_, collector_, [this] { hangs_.note_answers(); }) {}

Result<void> WorkerWatch::prepare(const World& world) {
  gpu_fault_lines_.clear();
  kernel_log_.skip();
  if (Result<void> prepared = flights_.prepare(world); !prepared) return prepared;
  return hangs_.prepare(world);
}

void WorkerWatch::start(const World& world, Pids pids, OnSuspects on_suspects) {
  pids_ = std::move(pids);
  base_rank_ = world.base_rank;
  node_rank_ = world.node_rank;
  if (!world.is_preflight) hangs_.start(world, pids_, std::move(on_suspects));
}

std::vector<int> WorkerWatch::stop() {
  hangs_.stop();
  look_.stop();
  ras_.stop();
  flights_.stop();
  return collector_.stop();
}

void WorkerWatch::ask_nccl(
    std::function<void(const std::vector<ras::RankPosition>&)> on_positions) {
  ras_.ask({.pids = pids_(), .base_rank = base_rank_},
           [on_positions = std::move(on_positions)](const ras::Findings& findings) {
             on_positions(findings.positions);
           });
}

std::vector<std::string> WorkerWatch::gpu_faults(int pid, const std::vector<int>& pids) {
  kernel_log_.read([this](std::string_view text) { add_gpu_fault(gpu_fault_lines_, text); });
  return faults_of_process(gpu_fault_lines_, pid, pids);
}

void WorkerWatch::look(OnEvidence on_evidence) {
  hangs_.begin_look();
  const std::vector<int> pids = pids_();
  look_.take({.pids = pids, .base_rank = base_rank_},
             [this, pids, on_evidence = std::move(on_evidence)](const NodeLook::Found& found) {
               std::vector<WorkerFacts> facts =
                   hangs_.facts(found.stacks.workers.size(), found.nccl);
               for (std::size_t i = 0; i < std::min(facts.size(), found.flights.size()); ++i)
                 if (found.flights[i]) facts[i].calls = flight_lines(*found.flights[i]);
               for (std::size_t i = 0; i < std::min(facts.size(), pids.size()); ++i)
                 for (const std::string& line : gpu_faults(pids[i], pids))
                   facts[i].calls.insert(facts[i].calls.begin(), kernel_log_line(node_rank_, line));
               on_evidence(evidence_of(found.stacks, base_rank_, facts, found.nccl.notes));
               hangs_.end_look();
             });
}

}  // namespace drun::agent
