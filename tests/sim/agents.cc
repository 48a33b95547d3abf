#include "tests/sim/agents.h"

#include <algorithm>
#include <utility>

#include "rendezvous/protocol/control_wire.h"

namespace drun::test {

using namespace rendezvous;

void SimulatedAgents::start_agent(int host, MemberSpec spec) {
  spec.host = "host" + std::to_string(host);
  spec.instance = random_();
  Agent& agent = agents_.emplace_back();
  agent.host = host;
  agent.member = new_member(std::move(spec));
  tell_member(agents_.size() - 1, MemberStart{});
}

SimulatedAgents::Agent* SimulatedAgents::living(int host) {
  for (Agent& agent : agents_) {
    if (agent.host == host && agent.is_alive && !agent.outcome) return &agent;
  }
  return nullptr;
}

std::size_t SimulatedAgents::index_of(const Agent& agent) const {
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (&agents_[i] == &agent) return i;
  }
  return agents_.size();
}

// --- the network

void SimulatedAgents::carry(Peer peer, bool is_up, std::function<void()> action) {
  Link& link = links_[peer];
  if (link.is_cut) return;
  Way& way = is_up ? link.up : link.down;
  way.free = std::max(way.free, now_ + between(0, longest_delay_ms_));
  at(way.free, [this, peer, is_up, action = std::move(action)]() mutable {
    Link& arrived = links_[peer];
    Way& there = is_up ? arrived.up : arrived.down;
    there.arrived.push_back(std::move(action));
    if (!there.is_stalled) flow(peer, is_up);
  });
}

// While the route is cut, messages are retransmitted, in order.
void SimulatedAgents::flow(Peer peer, bool is_up) {
  Link& link = links_[peer];
  Way& way = is_up ? link.up : link.down;
  const int from = is_up ? agents_[link.agent].host : link.host;
  const int to = is_up ? link.host : agents_[link.agent].host;
  while (!way.arrived.empty()) {
    way.is_stalled = is_way_cut(from, to);
    if (way.is_stalled)
      return later(between(200, 1500), [this, peer, is_up] { flow(peer, is_up); });
    const std::function<void()> action = std::move(way.arrived.front());
    way.arrived.pop_front();
    const bool is_open = is_up ? link.is_open_there && listens(link.host)
                               : link.is_open_here && agents_[link.agent].is_alive;
    if (is_open && !link.is_cut) action();
  }
  way.is_stalled = false;
}

void SimulatedAgents::close_here(Peer peer) {
  links_[peer].is_open_here = false;
  Agent& agent = agents_[links_[peer].agent];
  if (agent.link == peer) agent.link.reset();
}

void SimulatedAgents::break_link(Agent& agent) {
  if (!agent.link) return;
  const Peer peer = *agent.link;
  const std::size_t index = index_of(agent);
  agent.was_hurt = true;
  close_here(peer);
  tell_member(index, ConnectionLost{"reset"});
  // The coordinator may notice it late, after the member has already reconnected.
  later(percent() < 50 ? Milliseconds(0) : between(0, 9000), [this, peer] {
    if (!std::exchange(links_[peer].is_open_there, false)) return;
    tell_coordinator(links_[peer].host, PeerLeft{peer, "reset"});
  });
}

void SimulatedAgents::send_down(Peer peer, const CoordinatorMessage& message) {
  if (!links_[peer].is_open_there) return;
  carry(peer, false, [this, peer, frame = encode(message)] {
    note(frame);
    tell_member(links_[peer].agent,
                Heard{decode_coordinator_message(std::string_view(frame).substr(4)).value()});
  });
}

void SimulatedAgents::drop_link(Peer peer, const std::string& reason) {
  if (!links_[peer].is_open_there) return;
  close_there(peer);
  carry(peer, false, [this, peer, reason] {
    close_here(peer);
    tell_member(links_[peer].agent, ConnectionLost{reason});
  });
}

// --- the agents

void SimulatedAgents::tell_member(std::size_t agent, const MemberEvent& event) {
  Agent& self = agents_[agent];
  if (!self.is_alive || self.outcome) return;
  if (self.is_frozen) return delay(self, event);
  for (const MemberAction& action : step(self.member, event, local(self.host)))
    std::visit([this, agent](const auto& each) { act(agent, each); }, action);
  const long tick = ++self.tick;
  if (const auto wanted = deadline(self.member)) {
    at_local(self.host, *wanted, [this, agent, tick] {
      if (agents_[agent].tick == tick) tell_member(agent, MemberTick{});
    });
  }
}

void SimulatedAgents::delay(Agent& agent, const MemberEvent& event) {
  if (std::holds_alternative<MemberTick>(event)) return;
  const bool is_of_connection =
      std::holds_alternative<Connected>(event) || std::holds_alternative<ConnectFailed>(event) ||
      std::holds_alternative<Heard>(event) || std::holds_alternative<ConnectionLost>(event);
  agent.backlog.push_back({event, is_of_connection ? std::optional(agent.dial) : std::nullopt});
}

// A thawed process may handle its timers before or after the messages that arrived.
void SimulatedAgents::thaw(std::size_t agent) {
  agents_[agent].is_frozen = false;
  const auto events = std::exchange(agents_[agent].backlog, {});
  if (percent() < 50) tell_member(agent, MemberTick{});
  for (const Delayed& delayed : events) {
    if (delayed.dial.value_or(agents_[agent].dial) == agents_[agent].dial)
      tell_member(agent, delayed.event);
  }
  tell_member(agent, MemberTick{});
}

void SimulatedAgents::act(std::size_t agent, const Connect&) {
  const long dial = ++agents_[agent].dial;
  later(between(0, longest_delay_ms_), [this, agent, dial] {
    Agent& self = agents_[agent];
    if (!self.is_alive || self.outcome || self.dial != dial) return;
    const int host = dialled(self);
    // Across a cut there is no reply, not even a refusal.
    if (is_way_cut(self.host, host) || is_way_cut(host, self.host)) return;
    if (!listens(host)) return tell_member(agent, ConnectFailed{"connection refused", true});
    const Peer peer = ++last_peer_;
    links_[peer].agent = agent;
    links_[peer].host = host;
    self.link = peer;
    tell_member(agent, Connected{});
  });
}

void SimulatedAgents::act(std::size_t agent, const SendToCoordinator& say) {
  if (!agents_[agent].link) return;
  const Peer peer = *agents_[agent].link;
  carry(peer, true, [this, peer, frame = encode(say.message)] {
    note(frame);
    const auto message = decode_member_message(std::string_view(frame).substr(4));
    Link& link = links_[peer];
    if (std::exchange(link.is_greeted, true))
      return tell_coordinator(link.host, PeerSaid{peer, message.value()});
    const std::string address = agents_[link.agent].member.spec.host + ":1";
    tell_coordinator(link.host, PeerArrived{peer, address, message.value()});
  });
}

void SimulatedAgents::act(std::size_t agent, const Disconnect&) {
  ++agents_[agent].dial;
  if (!agents_[agent].link) return;
  const Peer peer = *agents_[agent].link;
  close_here(peer);
  carry(peer, true, [this, peer] {
    close_there(peer);
    tell_coordinator(links_[peer].host, PeerLeft{peer, "its connection closed"});
  });
}

void SimulatedAgents::act(std::size_t agent, const End& end) {
  Agent& self = agents_[agent];
  require(!self.outcome, "a second outcome");
  require(!self.running, "an outcome while workers run");
  self.outcome = end.outcome;
  trace(self.host, "its agent has ended");
  agent_ended(agent);
}

void SimulatedAgents::kill(Agent& agent) {
  agent.is_alive = false;
  agent.running.reset();
  if (agent.link) act(index_of(agent), Disconnect{});
}

// --- invariants

std::size_t SimulatedAgents::check_numbers(const std::map<std::size_t, World>& told) {
  const World& any = told.begin()->second;
  const int count = static_cast<int>(told.size());
  std::map<int, std::size_t> by_rank;
  std::set<int> hosts;
  for (const auto& [agent, world] : told) {
    require(by_rank.emplace(world.node_rank, agent).second, "two nodes with one number");
    require(hosts.insert(agents_[agent].host).second, "one host twice in a world");
    require(world.round == any.round && world.restarts == any.restarts && world.node_count == count,
            "two nodes with different worlds");
    require(world.is_preflight == any.is_preflight, "a program beside a probe");
    require(world.world_size == any.world_size, "two nodes with different world sizes");
  }
  int base = 0;
  for (int rank = 0; rank < count; ++rank) {
    require(by_rank.contains(rank), "a gap in the node numbers");
    if (!by_rank.contains(rank)) return told.begin()->first;
    const std::size_t agent = by_rank.at(rank);
    const World& world = told.at(agent);
    require(world.base_rank == base, "a gap in the ranks");
    require(world.local_world_size == agents_[agent].member.spec.join.local_world_size,
            "a wrong number of workers");
    base += world.local_world_size;
  }
  require(any.world_size == base, "a wrong world size");
  return by_rank.at(0);
}

}  // namespace drun::test
