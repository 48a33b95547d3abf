// Invariants of a job under any faults.
#include <algorithm>

#include "tests/sim/cluster.h"

namespace drun::test {

using namespace rendezvous;

void Cluster::check_worlds() {
  const World& any = told_.begin()->second;
  const int count = static_cast<int>(told_.size());
  require(any.round == worlds_, "two worlds in one round");
  ++worlds_;
  require(count >= weather_.min_nodes && count <= weather_.max_nodes, "too few or too many nodes");
  check_restarts(any);
  check_left_out();
  require(agents_[check_numbers(told_)].host == 0, "node 0 is not the endpoint's");
  for (const auto& [agent, world] : told_) {
    require(!weather_.is_fixed || world.node_rank == agents_[agent].host,
            "a node without its rank");
    const auto before = last_told_.find(agent);
    if (before != last_told_.end() && before->second.node_rank < count && !agents_[agent].was_hurt)
      require(world.node_rank == before->second.node_rank, "a node that stays lost its number");
  }
  for (const Agent& agent : agents_) {
    const bool is_told = agent.is_alive && !agent.was_hurt && agent.running;
    require(!is_told, "a world began while another still ran");
  }
  last_told_ = told_;
}

void Cluster::check_restarts(const World& world) {
  require(world.restarts <= weather_.max_restarts, "more restarts than allowed");
  if (last_told_.empty()) {
    require(world.restarts == 0, "a restart before the first world");
    return require(world.is_preflight == weather_.preflight, "the program before its preflight");
  }
  const World& last = last_told_.begin()->second;
  const int spent = world.restarts - last.restarts;
  const bool is_counted = was_failure_ && !last.is_preflight;
  require(spent == (is_counted ? 1 : 0), "restarts do not count failures one by one");
  require(last.is_preflight || !world.is_preflight,
          "a preflight check after the program has begun");
}

bool Cluster::is_left_out(int host) const {
  const std::string name = "host" + std::to_string(host);
  return std::any_of(round_.exclusions.nodes.begin(), round_.exclusions.nodes.end(),
                     [&name](const auto& entry) { return entry.told.host == name; });
}

void Cluster::check_left_out() {
  require(weather_.exclude_after > 0 || weather_.preflight || left_out() == 0,
          "a node was left out unasked");
  require(!is_left_out(0), "the coordinator's node was left out");
  for (const auto& [agent, world] : told_)
    require(!is_left_out(agents_[agent].host), "a node that was left out is in a world");
}

// Messages take up to 40 ms each way, so a failure that is more than 100 ms earlier must be
// reported as the root cause.
void Cluster::check_first_failure(const Failure& root) {
  const auto first = first_failures_.find(root.round);
  if (first == first_failures_.end()) return;
  const auto seen = std::chrono::microseconds(root.time.time_since_epoch());
  const auto earliest =
      std::chrono::duration_cast<std::chrono::microseconds>(first->second.time_since_epoch());
  // Failures on a node that was lost before it could report them cannot become the root cause.
  const bool is_kept = seen <= earliest + std::chrono::milliseconds(100);
  const bool was_calm = weather_.kills + weather_.cuts + weather_.drops + weather_.freezes == 0;
  require(is_kept || !was_calm, "the first failure was not kept");
}

std::optional<Outcome> Cluster::common_outcome() const {
  for (const Agent& agent : agents_) {
    if (agent.host == 0 && agent.is_alive) return agent.outcome;
  }
  return std::nullopt;
}

std::optional<Outcome> Cluster::outcome() const {
  const Agent* first = nullptr;
  for (const Agent& agent : agents_) {
    if (agent.is_alive && (first == nullptr || agent.host < first->host)) first = &agent;
  }
  return first == nullptr ? std::nullopt : first->outcome;
}

// An agent that the coordinator did not reach, or that has left an elastic job, decides alone.
bool Cluster::shares_outcome(const Agent& agent) const {
  if (weather_.is_fixed) return agent.member.first_world && !(agent.was_hurt && agent.was_signaled);
  return !is_left_out(agent.host) && !agent.was_hurt && !agent.was_signaled &&
         !std::holds_alternative<NotRun>(agent.outcome->ending);
}

void Cluster::check_end() {
  const std::optional<Outcome> common = common_outcome();
  for (const Agent& agent : agents_) {
    if (!agent.is_alive) continue;
    require(agent.outcome.has_value(), "a living agent without an outcome");
    if (!agent.outcome) continue;
    const Ending& ending = agent.outcome->ending;
    const auto* lost = std::get_if<NodeLost>(&ending);
    if (lost != nullptr && lost->is_coordinator) {
      require(was_master_killed_ || agent.was_hurt || is_over_,
              "a coordinator was lost that was not");
      continue;
    }
    if (common && shares_outcome(agent))
      require(*agent.outcome == *common, "two agents with different outcomes");
  }
  if (is_master_up_) require(is_over_, "the coordinator does not end");
  if (!common) return;
  if (const auto* failed = std::get_if<WorkersFailed>(&common->ending))
    check_first_failure(failed->failures.front());
  if (!std::holds_alternative<Succeeded>(common->ending)) return;
  require(!last_told_.begin()->second.is_preflight, "success without the program");
  for (const auto& [agent, world] : last_told_)
    require(returned_[world.round].contains(agent), "success without proof");
}

}  // namespace drun::test
