#include "agent/supervise/round_log.h"

#include <algorithm>
#include <string>

#include "agent/diagnosis/error_text.h"
#include "agent/wall_time.h"
#include "rendezvous/base/text.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/rank_ranges.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::agent {
namespace {

// Whether --max-restarts is for the whole job, so that it can be compared with all restarts.
bool counts_all_restarts(const AgentSpec& spec) {
  const RestartPolicy& policy = spec.join.restart;
  return policy.window == std::chrono::milliseconds::zero() && !policy.per_progress;
}

}  // namespace

std::string preflight_text(const World& world) {
  return "preflight: looking at " + std::to_string(world.node_count) +
         (world.node_count == 1 ? " machine" : " machines");
}

void log_world(const Log& log, const AgentSpec& spec, const std::optional<World>& before,
               const World& world) {
  if (world.is_preflight) {
    log.info(preflight_text(world));
  } else if (world.restarts > (before ? before->restarts : 0)) {
    // The coordinator has announced it, with the cause.
    log.debug("restarting all workers, restart " + std::to_string(world.restarts) +
              (counts_all_restarts(spec) ? " of " + std::to_string(world.max_restarts) : ""));
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
      log.warning("--wrap-ranks: there is no rank " + std::to_string(rank) + "; ranks are 0 to " +
                  std::to_string(world.world_size - 1));
  }
}

void log_failure(const Log& log, const AgentSpec& spec, const World& world,
                 const Failure& failure) {
  const bool is_named = !failure.role.empty() && failure.role != "default";
  const std::string text = "rank " + std::to_string(failure.rank) + " (local rank " +
                           std::to_string(failure.local_rank) +
                           (is_named ? ", role " + failure.role : "") + ", pid " +
                           std::to_string(failure.pid) + ") failed: " + to_string(failure.status) +
                           (failure.out_of_memory ? ", out of memory" : "");
  // The report has the failure that ends the job.
  if (world.restarts < world.max_restarts || !counts_all_restarts(spec))
    log.warning(text);
  else
    log.debug(text);
}

std::vector<ReportedTimeout> reported_timeouts(const World& world, const Output& output) {
  constexpr std::size_t kMostCalls = 4;
  std::vector<ReportedTimeout> timeouts;
  for (int i = 0; i < world.local_world_size; ++i) {
    const auto timeout = output.reported_timeout(i);
    if (!timeout) continue;
    const std::string call = timed_out_call(timeout->line);
    auto of_call = std::find_if(timeouts.begin(), timeouts.end(),
                                [&call](const ReportedTimeout& each) { return each.call == call; });
    if (of_call == timeouts.end()) {
      if (timeouts.size() >= kMostCalls) continue;
      of_call = timeouts.insert(of_call, {.call = call, .first = timeout->read_at});
    }
    add_rank(of_call->ranks, world.base_rank + i);
    of_call->first = std::min(of_call->first, timeout->read_at);
  }
  return timeouts;
}

void log_timeouts(const Log& log, const std::vector<ReportedTimeout>& timeouts) {
  const WallTime now = wall_now();
  for (const ReportedTimeout& timeout : timeouts) {
    const auto before = std::chrono::floor<std::chrono::milliseconds>(now - timeout.first);
    log.warning(ranks_text(timeout.ranks) + " had reported a timeout of " +
                (timeout.call.empty() ? "a collective" : timeout.call) +
                (count_of(timeout.ranks) > 1 ? ", the first " : " ") +
                rendezvous::duration_text(before) + " before the stop");
  }
}

void log_hang(const Log& log, const std::string& cause, const Evidence& evidence) {
  constexpr std::size_t kMostLines = 100;
  std::string text = cause + "; what the ranks do:";
  for (const std::string& line : evidence_lines(evidence, kMostLines)) text += "\n  " + line;
  log.warning(text);
}

void log_left_out(const Log& log, const LeftOut& node) {
  log.warning("the job continues without " + rendezvous::node_text(node.node_rank, node.host) +
              ": " + node.reason);
}

namespace {

std::string count_text(std::size_t count) {
  return count == 1 ? "a leftover process" : std::to_string(count) + " leftover processes";
}

}  // namespace

void log_waiting(const Log& log, const LeftoverList& leftovers,
                 std::chrono::milliseconds time_left) {
  log.warning("waiting up to " +
              std::to_string(std::chrono::ceil<std::chrono::seconds>(time_left).count()) +
              " s for " + count_text(leftovers.count) + ": " + to_string(leftovers) +
              "; choose --leftovers=kill to end such processes at once, or --leftovers=keep to "
              "leave them running");
}

void log_leftovers(const Log& log, const Leftovers& leftovers) {
  if (leftovers.terminated.count > 0)
    log.warning("terminated " + count_text(leftovers.terminated.count) + ": " +
                to_string(leftovers.terminated));
  if (leftovers.kept.count > 0)
    log.warning("left " + count_text(leftovers.kept.count) +
                " running: " + to_string(leftovers.kept) +
                "; choose --leftovers=wait to wait for such processes, or --leftovers=kill to end "
                "them");
  for (const Leftover& process : leftovers.unkillable.listed)
    log.error("SIGKILL does not end " + to_string(process) + ": " + process.reason);
}

std::string unusable_reason(const Leftovers& leftovers) {
  if (leftovers.unkillable.count == 0) return "";
  const Leftover& first = leftovers.unkillable.listed.front();
  const std::size_t more = leftovers.unkillable.count - 1;
  return "SIGKILL does not end " + to_string(first) + ": " + first.reason +
         (more == 0 ? "" : "; nor " + std::to_string(more) + " more") +
         "; no worker is started beside it";
}

}  // namespace drun::agent
