#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "tests/support/round_driver.h"

namespace drun::test {

using namespace rendezvous;

Cluster::Cluster(const Weather& weather, std::uint32_t seed)
    : Simulation(seed), SimulatedAgents(weather, kLongestDelay), weather_(weather) {
  for (int host = 0; host < weather.hosts; ++host) {
    if (host == weather.absent_host) continue;
    const bool is_late = host >= weather.hosts - weather.late_hosts && host > 0;
    later(is_late ? between(5000, kAccidentsUntil) : between(0, 2000),
          [this, host] { start_host(host); });
  }
  plan_accidents();
}

RoundSpec Cluster::round_spec() const {
  RoundSpec spec{.run_id = "none",
                 .node_count = weather_.max_nodes,
                 .max_restarts = weather_.max_restarts,
                 .restart = {.pause = Milliseconds(weather_.pause_ms)},
                 .preflight = weather_.preflight,
                 .endpoint = "host0:29400",
                 .master_addr = "host0",
                 .master_port = 29400,
                 .join_timeout = kJoinTimeout,
                 .heartbeat_timeout = kHeartbeatTimeout,
                 .make_stack_answers = agent::make_merged_stacks};
  if (!weather_.is_fixed)
    spec.elastic =
        ElasticSpec{.min_nodes = weather_.min_nodes, .exclude_after = weather_.exclude_after};
  return spec;
}

MemberSpec Cluster::member_spec(int host) const {
  MemberSpec spec;
  spec.join.node_count = weather_.max_nodes;
  if (weather_.is_fixed)
    spec.join.node_rank = host;
  else
    spec.join.elastic = ElasticSpec{.min_nodes = weather_.min_nodes};
  spec.join.local_world_size = 1 + host % 3;
  spec.join.endpoint = {"host0", 29400};
  spec.join.is_coordinator = host == 0;
  spec.join.max_restarts = weather_.max_restarts;
  spec.join.join_timeout = kJoinTimeout;
  spec.join.heartbeat_timeout = kHeartbeatTimeout;
  return spec;
}

void Cluster::start_host(int host) {
  if (host == 0) {
    round_ = open_round(round_spec(), now_);
    is_master_up_ = true;
    tell_round(RoundTick{});
  }
  start_agent(host, member_spec(host));
}

// A supervisor restarts the agent.
void Cluster::come_back(int host) {
  if (host == 0 || is_over_ || percent() >= weather_.comeback_chance) return;
  later(between(100, 8000), [this, host] {
    if (living(host) == nullptr && !is_over_) start_host(host);
  });
}

void Cluster::plan_accidents() {
  const auto happen = [this](int count, bool spares_master, std::function<void(Agent&)> accident) {
    const int first = spares_master ? 1 : 0;
    for (; count > 0 && first < weather_.hosts; --count) {
      const int host =
          first + static_cast<int>(random_() % static_cast<unsigned>(weather_.hosts - first));
      later(between(0, kAccidentsUntil), [this, host, accident] {
        if (Agent* const agent = living(host)) accident(*agent);
      });
    }
  };
  const auto be_signaled = [this](Agent& agent) {
    agent.was_signaled = true;
    tell_member(index_of(agent), OwnSignal{15});
  };
  happen(weather_.kills, true, [this](Agent& agent) {
    kill(agent);
    come_back(agent.host);
  });
  happen(weather_.leaves, true, be_signaled);
  happen(weather_.drops, true, [this](Agent& agent) { break_link(agent); });
  happen(weather_.cuts, true, [this](Agent& agent) {
    agent.was_hurt = true;
    if (agent.link) links_[*agent.link].is_cut = true;
  });
  happen(weather_.freezes, true, [this](Agent& agent) {
    agent.was_hurt = true;
    agent.is_frozen = true;
    later(between(100, 30'000), [this, i = index_of(agent)] { thaw(i); });
  });
  happen(weather_.twins, true, [this](Agent& agent) { start_host(agent.host); });
  happen(weather_.reboots, true, [this](Agent& agent) {
    const int host = agent.host;
    if (agent.link) links_[*agent.link].is_cut = true;
    agent.is_alive = false;
    agent.running.reset();
    if (!is_over_) start_host(host);
  });
  for (int host = 0; weather_.question_chance > 0 && host < weather_.hosts; ++host) {
    if (percent() >= weather_.question_chance) continue;
    later(between(0, kAccidentsUntil), [this, host] {
      if (Agent* const agent = living(host)) ask(index_of(*agent));
    });
  }
  if (percent() < weather_.kill_master_chance)
    later(between(0, kAccidentsUntil), [this] { kill_master(); });
  if (percent() < weather_.signal_master_chance) {
    later(between(0, kAccidentsUntil), [this, be_signaled] {
      if (Agent* const agent = living(0)) be_signaled(*agent);
    });
  }
}

void Cluster::run() {
  const Time horizon = now_ + std::chrono::hours(1);
  while (turn(horizon)) {
  }
  require(is_idle(), "it does not end");
}

// --- the agents

void Cluster::worker_failed(std::size_t agent, int round) {
  if (!agents_[agent].was_hurt) first_failures_.emplace(round, now_);
}

void Cluster::agent_ended(std::size_t agent) {
  const Agent& self = agents_[agent];
  if (std::holds_alternative<NodeLost>(self.outcome->ending)) come_back(self.host);
  if (self.host == 0) later(Milliseconds(0), [this] { tell_round(CoordinatorEnded{}); });
}

void Cluster::kill_master() {
  Agent* const agent = living(0);
  if (agent == nullptr || !is_master_up_) return;
  kill(*agent);
  was_master_killed_ = true;
  is_master_up_ = false;
  for (const auto& [peer, link] : links_) drop_link(peer, "reset");
}

// --- the coordinator

void Cluster::tell_round(const RoundEvent& event) {
  if (!is_master_up_ || is_over_) return;
  told_.clear();
  for (const RoundAction& action : step(round_, event, now_))
    std::visit([this](const auto& each) { act(each); }, action);
  if (!told_.empty()) check_worlds();
  const long tick = ++round_tick_;
  if (const auto wanted = deadline(round_)) {
    at(std::max(*wanted, now_), [this, tick] {
      if (round_tick_ == tick) tell_round(RoundTick{});
    });
  }
}

void Cluster::act(const SendTo& send) {
  note_world(send.peer, send.message);
  send_down(send.peer, send.message);
}

void Cluster::act(const SendResult& send) {
  for (const Requester& each : send.requesters) send_down(each.peer, result_for(each, send));
}

void Cluster::act(const SendAll& send) {
  if (const auto* stop = std::get_if<Stop>(&send.message))
    was_failure_ = stop->cause.find(" failed") != std::string::npos ||
                   stop->cause.find(" hung: ") != std::string::npos;
  for (const Peer peer : send.peers) send_down(peer, send.message);
}

void Cluster::note_world(Peer peer, const CoordinatorMessage& message) {
  const auto* ready = std::get_if<WorldReady>(&message);
  if (ready == nullptr) return;
  require(clear_count_ == ready->world.round + 1, "a world was sent before the store was empty");
  require(told_.emplace(links_[peer].agent, ready->world).second, "one agent has two seats");
}

}  // namespace drun::test
