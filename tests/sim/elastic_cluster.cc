#include "tests/sim/elastic_cluster.h"

#include <algorithm>
#include <utility>

#include "rendezvous/control_wire.h"

namespace drun::test {

using namespace rendezvous;

ElasticCluster::ElasticCluster(const ElasticWeather& weather, std::uint32_t seed)
    : weather_(weather), random_(seed) {
  for (int host = 0; host < weather.hosts; ++host) {
    const bool is_late = host >= weather.hosts - weather.late_hosts && host > 0;
    later(is_late ? between(5000, kAccidentsUntil) : between(0, 2000),
          [this, host] { start_agent(host); });
  }
  plan_accidents();
}

void ElasticCluster::start_agent(int host) {
  if (host == 0) {
    RoundSpec spec{.run_id = "none",
                   .node_count = weather_.max_nodes,
                   .elastic = ElasticSpec{.min_nodes = weather_.min_nodes,
                                          .exclude_after = weather_.exclude_after},
                   .max_restarts = weather_.max_restarts,
                   .restart = {.pause = Milliseconds(weather_.pause_ms)},
                   .preflight = weather_.preflight,
                   .endpoint = "host0:29400",
                   .master_addr = "host0",
                   .master_port = 29400,
                   .join_timeout = kJoinTimeout,
                   .heartbeat_timeout = kHeartbeatTimeout};
    round_ = open_round(spec, now_);
    is_master_up_ = true;
    tell_round(RoundTick{});
  }
  MemberSpec spec;
  spec.join.node_count = weather_.max_nodes;
  spec.join.elastic = ElasticSpec{.min_nodes = weather_.min_nodes};
  spec.join.local_world_size = 1 + host % 3;
  spec.join.endpoint = {"host0", 29400};
  spec.join.is_coordinator = host == 0;
  spec.join.max_restarts = weather_.max_restarts;
  spec.join.join_timeout = kJoinTimeout;
  spec.join.heartbeat_timeout = kHeartbeatTimeout;
  spec.host = "host" + std::to_string(host);
  spec.instance = random_();
  Agent& agent = agents_.emplace_back();
  agent.host = host;
  agent.member = new_member(spec);
  tell_member(agents_.size() - 1, MemberStart{});
}

// As a supervisor would start it again.
void ElasticCluster::come_back(int host) {
  if (host == 0 || is_over_ || percent() >= weather_.comeback_chance) return;
  later(between(100, 8000), [this, host] {
    if (living(host) == nullptr && !is_over_) start_agent(host);
  });
}

ElasticCluster::Agent* ElasticCluster::living(int host) {
  for (Agent& agent : agents_) {
    if (agent.host == host && agent.is_alive && !agent.outcome) return &agent;
  }
  return nullptr;
}

std::size_t ElasticCluster::index_of(const Agent& agent) const {
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (&agents_[i] == &agent) return i;
  }
  return agents_.size();
}

void ElasticCluster::plan_accidents() {
  const auto happen = [this](int count, bool spares_master, std::function<void(Agent&)> accident) {
    for (; count > 0; --count) {
      const int first = spares_master ? 1 : 0;
      const int host =
          first + static_cast<int>(random_() % static_cast<unsigned>(weather_.hosts - first));
      later(between(0, kAccidentsUntil), [this, host, accident] {
        if (Agent* const agent = living(host)) accident(*agent);
      });
    }
  };
  const auto be_signalled = [this](Agent& agent) {
    agent.was_signalled = true;
    tell_member(index_of(agent), OwnSignal{15});
  };
  happen(weather_.kills, true, [this](Agent& agent) {
    kill(agent);
    come_back(agent.host);
  });
  happen(weather_.leaves, true, be_signalled);
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
  for (int host = 0; weather_.question_chance > 0 && host < weather_.hosts; ++host) {
    if (percent() >= weather_.question_chance) continue;
    later(between(0, kAccidentsUntil), [this, host] {
      if (Agent* const agent = living(host)) ask(index_of(*agent));
    });
  }
  if (percent() < weather_.kill_master_chance)
    later(between(0, kAccidentsUntil), [this] { kill_master(); });
  if (percent() < weather_.signal_master_chance) {
    later(between(0, kAccidentsUntil), [this, be_signalled] {
      if (Agent* const agent = living(0)) be_signalled(*agent);
    });
  }
}

void ElasticCluster::at(Time when, std::function<void()> deed) {
  pending_.push({when, ++last_number_, std::move(deed)});
}

void ElasticCluster::run() {
  const Time horizon = now_ + std::chrono::hours(1);
  while (!pending_.empty() && broken_.empty()) {
    const Pending next = pending_.top();
    pending_.pop();
    if (next.when > horizon) return require(false, "it goes on for ever");
    now_ = next.when;
    next.deed();
  }
}

// --- the wire

void ElasticCluster::carry_up(Peer peer, std::function<void()> deed) {
  Link& link = links_[peer];
  if (link.is_cut) return;
  link.up_free = std::max(link.up_free, now_ + between(0, kLongestDelay));
  at(link.up_free, [this, peer, deed = std::move(deed)] {
    const Link& arrived = links_[peer];
    if (arrived.is_open_there && !arrived.is_cut && is_master_up_) deed();
  });
}

void ElasticCluster::carry_down(Peer peer, std::function<void()> deed) {
  Link& link = links_[peer];
  if (link.is_cut) return;
  link.down_free = std::max(link.down_free, now_ + between(0, kLongestDelay));
  at(link.down_free, [this, peer, deed = std::move(deed)] {
    const Link& arrived = links_[peer];
    if (arrived.is_open_here && !arrived.is_cut && agents_[arrived.agent].is_alive) deed();
  });
}

void ElasticCluster::close_here(Peer peer) {
  links_[peer].is_open_here = false;
  Agent& agent = agents_[links_[peer].agent];
  if (agent.link == peer) agent.link.reset();
}

void ElasticCluster::break_link(Agent& agent) {
  if (!agent.link) return;
  const Peer peer = *agent.link;
  const std::size_t index = index_of(agent);
  agent.was_hurt = true;
  close_here(peer);
  tell_member(index, ConnectionLost{"reset"});
  // The other side may hear of it late, when its member is back already.
  later(percent() < 50 ? Milliseconds(0) : between(0, 9000), [this, peer] {
    if (!std::exchange(links_[peer].is_open_there, false)) return;
    tell_round(PeerLeft{peer, "reset"});
  });
}

// --- the agents

void ElasticCluster::tell_member(std::size_t agent, const MemberEvent& event) {
  if (!agents_[agent].is_alive || agents_[agent].outcome) return;
  if (agents_[agent].is_frozen) return agents_[agent].backlog.push_back(event);
  for (const MemberAction& action : step(agents_[agent].member, event, now_))
    std::visit([this, agent](const auto& deed) { act(agent, deed); }, action);
  const long tick = ++agents_[agent].tick;
  if (const auto wanted = deadline(agents_[agent].member)) {
    at(std::max(*wanted, now_), [this, agent, tick] {
      if (agents_[agent].tick == tick) tell_member(agent, MemberTick{});
    });
  }
}

// Timers may be looked at before what has arrived, or after.
void ElasticCluster::thaw(std::size_t agent) {
  agents_[agent].is_frozen = false;
  const auto events = std::exchange(agents_[agent].backlog, {});
  if (percent() < 50) tell_member(agent, MemberTick{});
  for (const MemberEvent& event : events) tell_member(agent, event);
}

void ElasticCluster::act(std::size_t agent, const Connect&) {
  later(between(0, kLongestDelay), [this, agent] {
    Agent& self = agents_[agent];
    if (!self.is_alive || self.outcome || self.member.phase != MemberPhase::Dialing) return;
    if (!is_master_up_ || is_over_)
      return tell_member(agent, ConnectFailed{"connection refused", true});
    const Peer peer = ++last_peer_;
    links_[peer].agent = agent;
    self.link = peer;
    tell_round(PeerArrived{peer, self.member.spec.host});
    tell_member(agent, Connected{});
  });
}

void ElasticCluster::act(std::size_t agent, const Say& say) {
  if (!agents_[agent].link) return;
  const Peer peer = *agents_[agent].link;
  carry_up(peer, [this, peer, frame = encode(say.message)] {
    const auto message = decode_member_message(std::string_view(frame).substr(4));
    RoundEvent event(std::in_place_type<PeerSaid>);
    std::get<PeerSaid>(event) = {peer, message.value()};
    tell_round(event);
  });
}

void ElasticCluster::act(std::size_t agent, const Disconnect&) {
  if (!agents_[agent].link) return;
  const Peer peer = *agents_[agent].link;
  close_here(peer);
  carry_up(peer, [this, peer] {
    close_there(peer);
    tell_round(PeerLeft{peer, "its connection closed"});
  });
}

void ElasticCluster::act(std::size_t agent, const StartWorkers& start) {
  Agent& self = agents_[agent];
  require(!self.running, "workers are started while others still run");
  require(!self.outcome, "workers are started after the end");
  self.running = start.world;
  self.is_stopping = false;
  self.is_hung = false;
  self.failures.clear();
  const int round = start.world.round;
  if (weather_.hang_chance > 0 && !start.world.is_preflight && percent() < weather_.hang_chance)
    return later(between(0, kLongestRound), [this, agent, round] { worker_hangs(agent, round); });
  const bool is_bad = self.host > 0 && self.host <= weather_.bad_hosts;
  if (percent() < (is_bad ? 90 : weather_.failure_chance))
    later(between(0, kLongestRound), [this, agent, round] { worker_fails(agent, round); });
  else
    later(between(0, kLongestRound), [this, agent, round] { workers_return(agent, round); });
}

void ElasticCluster::worker_fails(std::size_t agent, int round) {
  Agent& self = agents_[agent];
  if (!self.is_alive || !self.running || self.running->round != round || self.is_stopping) return;
  AgedFailure aged;
  aged.failure.rank = self.running->base_rank;
  aged.failure.node_rank = self.running->node_rank;
  aged.failure.round = round;
  aged.failure.status = Exited{1};
  aged.failure.time =
      WallTime(std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch()));
  if (!self.was_hurt) first_failures_.emplace(round, now_);
  self.failures.push_back(aged);
  tell_member(agent, OwnFailure{aged});
  stop_workers(agent);
}

void ElasticCluster::workers_return(std::size_t agent, int round) {
  Agent& self = agents_[agent];
  if (!self.is_alive || !self.running || self.running->round != round || self.is_stopping) return;
  returned_[round].insert(agent);
  self.running.reset();
  tell_member(agent, OwnSuccess{round});
}

void ElasticCluster::act(std::size_t agent, const StopWorkers& stop) {
  if (agents_[agent].running) {
    require(agents_[agent].running->round == stop.round, "another round is stopped than runs");
    return stop_workers(agent);
  }
  later(Milliseconds(0), [this, agent, round = stop.round] {
    tell_member(agent, OwnStopped{round, {}});
  });
}

void ElasticCluster::stop_workers(std::size_t agent) {
  if (std::exchange(agents_[agent].is_stopping, true)) return;
  later(between(0, kLongestStop), [this, agent] {
    Agent& stopped = agents_[agent];
    if (!stopped.is_alive) return;
    const int round = stopped.running->round;
    stopped.running.reset();
    tell_member(agent, OwnStopped{round, std::exchange(stopped.failures, {})});
  });
}

void ElasticCluster::act(std::size_t agent, const End& end) {
  Agent& self = agents_[agent];
  require(!self.outcome, "a second outcome");
  require(!self.running, "an outcome while workers run");
  self.outcome = end.outcome;
  if (std::holds_alternative<NodeLost>(end.outcome.ending)) come_back(self.host);
  if (self.host == 0) later(Milliseconds(0), [this] { tell_round(HostEnded{}); });
}

void ElasticCluster::kill(Agent& agent) {
  agent.is_alive = false;
  agent.running.reset();
  if (agent.link) act(index_of(agent), Disconnect{});
}

void ElasticCluster::kill_master() {
  Agent* const agent = living(0);
  if (agent == nullptr || !is_master_up_) return;
  kill(*agent);
  was_master_killed_ = true;
  is_master_up_ = false;
  for (auto& [peer, link] : links_) {
    if (!link.is_open_there) continue;
    link.is_open_there = false;
    carry_down(peer, [this, peer = peer, other = link.agent] {
      close_here(peer);
      tell_member(other, ConnectionLost{"reset"});
    });
  }
}

// --- the coordinator

void ElasticCluster::tell_round(const RoundEvent& event) {
  if (!is_master_up_ || is_over_) return;
  told_.clear();
  for (const RoundAction& action : step(round_, event, now_))
    std::visit([this](const auto& deed) { act(deed); }, action);
  if (!told_.empty()) check_worlds();
  const long tick = ++round_tick_;
  if (const auto wanted = deadline(round_)) {
    at(std::max(*wanted, now_), [this, tick] {
      if (round_tick_ == tick) tell_round(RoundTick{});
    });
  }
}

void ElasticCluster::act(const SendTo& send) { send_down(send.peer, send.message); }

void ElasticCluster::act(const SendAll& send) {
  if (const auto* stop = std::get_if<Stop>(&send.message))
    was_failure_ = stop->cause.find(" failed") != std::string::npos ||
                   stop->cause.find(" hung: ") != std::string::npos;
  for (const Peer peer : send.peers) send_down(peer, send.message);
}

void ElasticCluster::send_down(Peer peer, const CoordinatorMessage& message) {
  if (const auto* ready = std::get_if<WorldReady>(&message)) {
    require(clear_count_ == ready->world.round + 1, "a world was told before the store was empty");
    require(told_.emplace(links_[peer].agent, ready->world).second, "one agent has two seats");
  }
  if (!links_[peer].is_open_there) return;
  carry_down(peer, [this, peer, frame = encode(message)] {
    tell_member(links_[peer].agent,
                Heard{decode_coordinator_message(std::string_view(frame).substr(4)).value()});
  });
}

void ElasticCluster::act(const Drop& drop) {
  if (!links_[drop.peer].is_open_there) return;
  close_there(drop.peer);
  carry_down(drop.peer, [this, peer = drop.peer] {
    close_here(peer);
    tell_member(links_[peer].agent, ConnectionLost{"closed"});
  });
}

}  // namespace drun::test
