// Invariants of a job with an elected coordinator under any faults.
#include <algorithm>

#include "tests/sim/joint_cluster.h"

namespace drun::test {

using namespace rendezvous;

namespace {

// Within this time both sides notice a loss, and workers are stopped.
constexpr std::chrono::seconds kNoticed{15};
// Maximum error of a failure's age, from clock drift while workers stop for up to 3 s.
constexpr std::chrono::milliseconds kAgeError{300};

}  // namespace

bool JointCluster::was_well(int one, int other, Time from, Time to) const {
  return std::none_of(troubles_.begin(), troubles_.end(), [=](const Trouble& trouble) {
    if (trouble.to < from || trouble.from > to) return false;
    if (!trouble.other) return trouble.host == one || trouble.host == other;
    return (trouble.host == one && *trouble.other == other) ||
           (trouble.host == other && *trouble.other == one);
  });
}

// Records which seats certainly knew the number of rounds when the last round began.
void JointCluster::note_knowers(int host, int rounds) {
  last_known_ = rounds;
  knowers_ = {{host, lives_[host]}};
  for (int seat = 0; seat < weather_.seats; ++seat) {
    const SeatView& view = election(host).seats[static_cast<std::size_t>(seat)];
    const bool is_same = is_up(seat) && view.instance == election(seat).spec.instance;
    if (seat != host && view.granted_at && view.known_rounds >= rounds)
      knowers_[seat] = is_same ? lives_[seat] : -1;
  }
}

// Every majority contains a seat that knows it, unless that seat has restarted since.
void JointCluster::check_memory(const Leading& leading) {
  ++takeovers_;
  const auto left = std::count_if(knowers_.begin(), knowers_.end(), [this](const auto& knower) {
    return is_up(knower.first) && lives_[knower.first] == knower.second;
  });
  const int majority = weather_.seats / 2 + 1;
  if (leading.before.rounds >= last_known_) return;
  require(left <= weather_.seats - majority, "a leader does not know of the last round");
  has_forgotten_ = true;
}

JointCluster::ToldWorld* JointCluster::world_of(std::size_t agent, int round) {
  for (auto world = worlds_.rbegin(); world != worlds_.rend(); ++world) {
    if (world->round == round && world->told.contains(agent)) return &*world;
  }
  return nullptr;
}

void JointCluster::check_world(int host) {
  const auto told = office(host).take_told();
  if (told.empty()) return;
  const World& any = told.begin()->second;
  const int count = static_cast<int>(told.size());
  require(is_leading(election(host), local(host)), "a world is sent without a lead");
  require(count >= weather_.min_nodes && count <= weather_.max_nodes, "too few or too many nodes");
  require(agents_[check_numbers(told)].host == host, "node 0 is not the coordinator's");
  require(any.master_addr == "host" + std::to_string(host), "workers meet somewhere else");
  require(any.round < last_known_, "a world is sent before others know it");
  for (const ToldWorld& world : worlds_)
    require(has_forgotten_ || world.round < any.round, "two worlds in one round");
  check_preflight(told);
  check_restarts(host, any);
  check_old_workers(told);
  if (const auto then = std::exchange(handed_over_, std::nullopt))
    longest_handover_ =
        std::max(longest_handover_, std::chrono::duration_cast<Milliseconds>(now_ - *then));
  worlds_.push_back({.host = host,
                     .life = lives_[host],
                     .term = election(host).own_term,
                     .round = any.round,
                     .restarts = any.restarts,
                     .told = told});
}

// A new coordinator repeats the check unless a member knows that the program has begun.
void JointCluster::check_preflight(const std::map<std::size_t, World>& told) {
  const bool is_preflight = told.begin()->second.is_preflight;
  const bool is_known = std::any_of(told.begin(), told.end(), [this](const auto& each) {
    return agents_[each.first].member.memory.is_checked;
  });
  require(!is_preflight || (weather_.preflight && !is_known),
          "a preflight check after the program has begun");
  const bool is_checked = std::any_of(worlds_.begin(), worlds_.end(), [](const ToldWorld& each) {
    return each.told.begin()->second.is_preflight && each.returned.size() == each.told.size();
  });
  require(is_preflight || !weather_.preflight || is_checked, "the program before its preflight");
}

// A counted restart that was not reported to any member is forgotten with its leader.
void JointCluster::check_restarts(int host, const World& world) {
  Office& self = office(host);
  most_restarts_ = std::max(most_restarts_, world.restarts);
  require(world.restarts <= weather_.max_restarts, "more restarts than allowed");
  require(world.restarts <= failure_stops_, "more restarts than failures");
  for (const auto& [peer, address] : self.connections()) {
    const Agent& agent = agents_[links_[peer].agent];
    const bool is_in = self.coordination().round().node_of.contains(peer);
    require(!is_in || world.restarts >= static_cast<int>(agent.member.memory.restarts.size()),
            "a restart that a member knows of is forgotten");
  }
  if (worlds_.empty()) return;
  const ToldWorld& last = worlds_.back();
  const bool is_same_lead =
      last.host == host && last.life == lives_[host] && last.term == election(host).own_term;
  if (!is_same_lead) return;
  const int spent = self.was_failure() ? 1 : 0;
  require(world.restarts >= last.restarts + spent, "a failure did not use up a restart");
  // A returning member may know of more restarts, from an earlier coordinator.
  int known = 0;
  for (const ToldWorld& each : worlds_) known = std::max(known, each.restarts);
  for (const auto& [peer, address] : self.connections()) {
    const Memory& memory = agents_[links_[peer].agent].member.memory;
    known = std::max(known, static_cast<int>(memory.restarts.size()));
  }
  require(world.restarts <= known + spent, "a restart that no failure used up");
}

// No node that its coordinator can reach still runs workers of an earlier world.
void JointCluster::check_old_workers(const std::map<std::size_t, World>& told) {
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const Agent& agent = agents_[i];
    if (!agent.is_alive || !agent.running) continue;
    require(!told.contains(i), "a world begins where workers of another run");
    if (agent.is_stopping || agent.is_frozen || !agent.link) continue;
    const Link& link = links_.at(*agent.link);
    const bool is_held = link.is_open_there && !link.is_cut;
    require(!is_held || !was_well(agent.host, link.host, now_ - kNoticed, now_),
            "two worlds run at a time, each with its coordinator");
  }
}

void JointCluster::worker_failed(std::size_t agent, int round) {
  if (ToldWorld* const world = world_of(agent, round)) world->failures.emplace(agent, now_);
}

void JointCluster::workers_returned(std::size_t agent, int round) {
  if (ToldWorld* const world = world_of(agent, round)) world->returned.insert(agent);
}

std::optional<Outcome> JointCluster::outcome() const {
  return ends_.empty() ? std::nullopt : std::optional(ends_.back().outcome);
}

void JointCluster::check_end() {
  for (const Agent& agent : agents_)
    require(!agent.is_alive || agent.outcome.has_value(), "a living agent without an outcome");
  for (const auto& each : offices_) require(!each->is_up(), "an office that is never closed");
  require(!ends_.empty() || weather_.leaves + weather_.leader_leaves > 0,
          "a job that no node has ended");
  const Time calm = Time(std::chrono::hours(1)) + Milliseconds(kCalmFrom);
  require(ends_.size() < 2 || ends_.front().at < calm + kNoticed,
          "a job is ended twice, though all was well");
  for (const ToldEnd& end : ends_) check_told_end(end);
}

void JointCluster::check_told_end(const ToldEnd& end) {
  for (const std::size_t i : end.agents) {
    const Agent& agent = agents_[i];
    const bool is_well = was_well(agent.host, end.host, end.at - kNoticed, end.at + kNoticed);
    if (!agent.is_alive || agent.was_signaled || !is_well) continue;
    require(agent.outcome == end.outcome, "two agents with different outcomes");
  }
  if (const auto* failed = std::get_if<WorkersFailed>(&end.outcome.ending))
    check_root(end, failed->failures.front());
  if (!std::holds_alternative<Succeeded>(end.outcome.ending)) return;
  const auto last = std::find_if(worlds_.rbegin(), worlds_.rend(),
                                 [&](const ToldWorld& world) { return world.host == end.host; });
  require(last != worlds_.rend(), "success without a world");
  if (last == worlds_.rend()) return;
  for (const auto& [agent, world] : last->told)
    require(!world.is_preflight, "success without the program");
  for (const auto& [agent, world] : last->told)
    require(last->returned.contains(agent), "success without proof");
}

void JointCluster::check_root(const ToldEnd& end, const Failure& root) {
  const auto world = std::find_if(worlds_.rbegin(), worlds_.rend(), [&](const ToldWorld& each) {
    return each.host == end.host && each.round == root.round;
  });
  require(world != worlds_.rend(), "a root cause of a round that never was");
  if (world == worlds_.rend()) return;
  const auto seen = std::chrono::microseconds(root.time.time_since_epoch());
  const auto slack = kAgeError + std::chrono::milliseconds(weather_.longest_delay_ms);
  for (const auto& [agent, when] : world->failures) {
    const bool is_told =
        agents_[agent].is_alive && was_well(agents_[agent].host, end.host, when - kNoticed, end.at);
    const auto own = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch());
    require(!is_told || seen <= own + slack, "the first failure was not kept");
  }
}

}  // namespace drun::test
