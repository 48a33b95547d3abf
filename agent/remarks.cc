#include "agent/remarks.h"

#include <string>

#include "rendezvous/failure.h"
#include "rendezvous/round/roll_call.h"

namespace drun::agent {

void log_world(const Log& log, const AgentSpec& spec, const std::optional<World>& before,
               const World& world) {
  if (world.is_preflight) {
    log.info("preflight: looking at " + std::to_string(world.node_count) +
             (world.node_count == 1 ? " machine" : " machines"));
  } else if (world.restarts > (before ? before->restarts : 0)) {
    log.info("restarting all workers, restart " + std::to_string(world.restarts) + " of " +
             std::to_string(world.max_restarts));
  } else if (spec.join.elastic) {
    log.info("starting round " + std::to_string(world.round) + ": this is node " +
             std::to_string(world.node_rank) + " of " + std::to_string(world.node_count) +
             ", with ranks from " + std::to_string(world.base_rank) + " of " +
             std::to_string(world.world_size));
  }
}

void warn_of_ranks_not_there(const Log& log, const AgentSpec& spec,
                             const std::optional<World>& before, const World& world) {
  const bool is_first = !world.is_preflight && (!before || before->is_preflight);
  if (!is_first || world.node_rank != 0) return;
  for (const int rank : spec.worker.wrap.ranks) {
    if (rank >= world.world_size)
      log.warning("--wrap-ranks: there is no rank " + std::to_string(rank) +
                  "; they go from 0 to " + std::to_string(world.world_size - 1));
  }
}

void log_failure(const Log& log, const Failure& failure) {
  const bool is_named = !failure.role.empty() && failure.role != "default";
  log.warning("rank " + std::to_string(failure.rank) + " (local rank " +
              std::to_string(failure.local_rank) + (is_named ? ", role " + failure.role : "") +
              ", pid " + std::to_string(failure.pid) + ") failed: " + to_string(failure.status) +
              (failure.out_of_memory ? ", out of memory" : ""));
}

void log_hang(const Log& log, const rendezvous::HangFound& found) {
  constexpr std::size_t kMostLines = 100;
  std::string text = found.cause + "; what the ranks do:";
  for (const std::string& line : evidence_lines(found.evidence, kMostLines)) text += "\n  " + line;
  log.warning(text);
}

void log_left_out(const Log& log, const LeftOut& node) {
  log.warning("the job goes on without " + rendezvous::node_text(node.node_rank, node.host) + ": " +
              node.reason);
}

void log_leftovers(const Log& log, const Leftovers& leftovers) {
  for (const Leftover& one : leftovers.stopped) {
    log.warning("ended what a worker left running: pid " + std::to_string(one.pid) + " (" +
                one.name + ")");
  }
  for (const Leftover& one : leftovers.unkillable) {
    log.error("pid " + std::to_string(one.pid) + " (" + one.name +
              ") does not end on SIGKILL: it is stuck in the kernel; going on without it");
  }
}

}  // namespace drun::agent
