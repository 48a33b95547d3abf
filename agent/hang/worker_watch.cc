#include "agent/hang/worker_watch.h"

#include <algorithm>
#include <utility>

#include "agent/hang/worker_evidence.h"

namespace drun::agent {

WorkerWatch::WorkerWatch(asio::io_context& io, const Log& log, const AgentSpec& spec,
                         std::span<const std::string> environment, Output& output)
    : ras_(io, log, spec),
      hangs_(io, spec.hang_timeout, output, ras_),
      flights_(io, log, spec),
      collector_(io, environment),
      look_(io, ras_, flights_, collector_) {}

void WorkerWatch::start(const World& world, Pids pids, OnSuspects on_suspects) {
  pids_ = std::move(pids);
  base_rank_ = world.base_rank;
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

void WorkerWatch::look(OnEvidence on_evidence) {
  hangs_.begin_look();
  look_.take({.pids = pids_(), .base_rank = base_rank_},
             [this, on_evidence = std::move(on_evidence)](const NodeLook::Found& found) {
               std::vector<WorkerFacts> facts =
                   hangs_.facts(found.stacks.workers.size(), found.nccl);
               for (std::size_t i = 0; i < std::min(facts.size(), found.flights.size()); ++i)
                 if (found.flights[i]) facts[i].calls = flight_lines(*found.flights[i]);
               on_evidence(evidence_of(found.stacks, base_rank_, facts, found.nccl.notes));
               hangs_.end_look();
             });
}

}  // namespace drun::agent
