#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "rendezvous/protocol/control_wire.h"
#include "tests/support/round_driver.h"

namespace drun::test {

using namespace rendezvous;

Cluster::Cluster(const Weather& weather, std::uint32_t seed) : Simulation(seed) {
  failure_chance_ = weather.failure_chance;
  hang_chance_ = weather.hang_chance;
  mute_chance_ = weather.mute_chance;
  nodes_.resize(static_cast<std::size_t>(weather.node_count));
  const bool has_absent = percent() < weather.absent_chance;
  const int absent = has_absent ? static_cast<int>(random_() % nodes_.size()) : -1;
  for (int node = 0; node < weather.node_count; ++node) {
    MemberSpec spec;
    spec.join.node_rank = node;
    spec.join.node_count = weather.node_count;
    spec.join.local_world_size = 1 + static_cast<int>(random_() % 3);
    spec.join.endpoint = {"master", 29500};
    spec.join.max_restarts = weather.max_restarts;
    spec.join.join_timeout = kJoinTimeout;
    spec.join.heartbeat_timeout = kHeartbeatTimeout;
    spec.host = "host" + std::to_string(node);
    spec.instance = random_();
    node_at(node).member = new_member(spec);
    if (node == absent) continue;
    later(between(0, 2000), [this, node, weather] {
      node_at(node).is_alive = true;
      if (node == 0) {
        is_master_up_ = true;
        round_ = open_round({.run_id = "none",
                             .node_count = weather.node_count,
                             .max_restarts = weather.max_restarts,
                             .endpoint = "master:29500",
                             .master_addr = "master",
                             .master_port = 29500,
                             .join_timeout = kJoinTimeout,
                             .heartbeat_timeout = kHeartbeatTimeout,
                             .make_stack_answers = agent::make_merged_stacks},
                            now_);
        tell_round(RoundTick{});
      }
      tell_member(node, MemberStart{});
    });
  }
  plan_accidents(weather);
  for (int node = 0; node < weather.node_count; ++node) {
    if (weather.question_chance > 0 && percent() < weather.question_chance)
      later(between(0, 12'000), [this, node] { ask(node); });
  }
}

void Cluster::plan_accidents(const Weather& weather) {
  const auto somewhere = [this] { return static_cast<int>(random_() % nodes_.size()); };
  if (percent() < weather.interrupt_chance) {
    later(between(0, 12'000), [this, node = somewhere()] {
      if (!node_at(node).is_alive || node_at(node).outcome) return;
      node_at(node).was_signaled = true;
      tell_member(node, OwnSignal{15});
    });
  }
  if (percent() < weather.kill_chance && nodes_.size() > 1)
    later(between(0, 12'000),
          [this, node = 1 + somewhere() % (static_cast<int>(nodes_.size()) - 1)] { kill(node); });
  if (percent() < weather.kill_master_chance) later(between(0, 12'000), [this] { kill(0); });
  if (percent() < weather.cut_chance) {
    later(between(0, 12'000), [this, node = somewhere()] {
      if (!node_at(node).link) return;
      node_at(node).was_cut = true;
      links_[*node_at(node).link].is_cut = true;
    });
  }
  if (percent() < weather.drop_chance) {
    later(between(0, 12'000), [this, node = somewhere()] {
      if (!node_at(node).link) return;
      const Peer peer = *node_at(node).link;
      node_at(node).was_cut = true;
      close_here(peer);
      close_there(peer);
      tell_member(node, ConnectionLost{"reset"});
      tell_round(PeerLeft{peer, "reset"});
    });
  }
}

void Cluster::run() {
  const Time horizon = now_ + std::chrono::minutes(10);
  while (turn(horizon)) {
  }
  require(is_idle(), "it does not end");
}

// --- the network

void Cluster::carry_up(Peer peer, std::function<void()> action) {
  Link& link = links_[peer];
  if (link.is_cut) return;
  link.up_free = std::max(link.up_free, now_ + between(0, kLongestDelay));
  at(link.up_free, [this, peer, action = std::move(action)] {
    const Link& arrived = links_[peer];
    if (arrived.is_open_there && !arrived.is_cut && is_master_up_) action();
  });
}

void Cluster::carry_down(Peer peer, std::function<void()> action) {
  Link& link = links_[peer];
  if (link.is_cut) return;
  link.down_free = std::max(link.down_free, now_ + between(0, kLongestDelay));
  at(link.down_free, [this, peer, action = std::move(action)] {
    const Link& arrived = links_[peer];
    if (arrived.is_open_here && !arrived.is_cut && node_at(arrived.node).is_alive) action();
  });
}

void Cluster::close_here(Peer peer) {
  links_[peer].is_open_here = false;
  Node& node = node_at(links_[peer].node);
  if (node.link == peer) node.link.reset();
}

void Cluster::close_there(Peer peer) { links_[peer].is_open_there = false; }

// --- the nodes

void Cluster::tell_member(int node, const MemberEvent& event) {
  Node& self = node_at(node);
  if (!self.is_alive) return;
  for (const MemberAction& action : step(self.member, event, now_))
    std::visit([this, node](const auto& each) { act(node, each); }, action);
  const long tick = ++self.tick;
  if (const auto wanted = deadline(self.member)) {
    at(std::max(*wanted, now_), [this, node, tick] {
      if (node_at(node).tick == tick) tell_member(node, MemberTick{});
    });
  }
}

void Cluster::act(int node, const Connect&) {
  later(between(0, kLongestDelay), [this, node] {
    Node& self = node_at(node);
    if (!self.is_alive || self.member.phase != MemberPhase::Dialing) return;
    if (!is_master_up_ || is_over_) return tell_member(node, ConnectFailed{"connection refused"});
    const Peer peer = ++last_peer_;
    links_[peer].node = node;
    self.link = peer;
    tell_member(node, Connected{});
  });
}

void Cluster::act(int node, const SendToCoordinator& say) {
  if (!node_at(node).link) return;
  const Peer peer = *node_at(node).link;
  carry_up(peer, [this, peer, frame = encode(say.message)] {
    note(frame);
    const auto message = decode_member_message(std::string_view(frame).substr(4));
    if (std::exchange(links_[peer].is_greeted, true))
      return tell_round(PeerSaid{peer, message.value()});
    tell_round(PeerArrived{peer, node_at(links_[peer].node).member.spec.host, message.value()});
  });
}

void Cluster::act(int node, const Disconnect&) {
  if (!node_at(node).link) return;
  const Peer peer = *node_at(node).link;
  close_here(peer);
  carry_up(peer, [this, peer] {
    close_there(peer);
    tell_round(PeerLeft{peer, "its connection closed"});
  });
}

void Cluster::act(int node, const StartWorkers& start) {
  Node& self = node_at(node);
  require(!self.running, "workers are started while others still run");
  require(!self.outcome, "workers are started after the end");
  check_world(node, start.world);
  self.running = start.world;
  self.is_stopping = false;
  self.is_hung = false;
  self.failures.clear();
  const int round = start.world.round;
  if (hang_chance_ > 0 && percent() < hang_chance_)
    return later(between(0, kLongestRound), [this, node, round] { worker_hangs(node, round); });
  if (percent() < failure_chance_)
    later(between(0, kLongestRound), [this, node, round] { worker_fails(node, round); });
  else
    later(between(0, kLongestRound), [this, node, round] { workers_return(node, round); });
}

void Cluster::worker_fails(int node, int round) {
  Node& self = node_at(node);
  if (!self.is_alive || !self.running || self.running->round != round || self.is_stopping) return;
  AgedFailure aged;
  aged.failure.rank = self.running->base_rank;
  aged.failure.node_rank = node;
  aged.failure.round = round;
  aged.failure.status = Exited{1};
  self.failures.push_back(aged);
  tell_member(node, OwnFailure{aged});
  stop_workers(node);
}

void Cluster::workers_return(int node, int round) {
  Node& self = node_at(node);
  if (!self.is_alive || !self.running || self.running->round != round || self.is_stopping) return;
  returned_[round].insert(node);
  self.running.reset();
  tell_member(node, OwnSuccess{round});
}

void Cluster::act(int node, const StopWorkers& stop) {
  Node& self = node_at(node);
  if (self.running) {
    require(self.running->round == stop.round, "another round is stopped than runs");
    return stop_workers(node);
  }
  later(Milliseconds(0), [this, node, round = stop.round] {
    tell_member(node, OwnStopped{round, {}});
  });
}

void Cluster::stop_workers(int node) {
  Node& self = node_at(node);
  if (std::exchange(self.is_stopping, true)) return;
  later(between(0, kLongestStop), [this, node] {
    Node& stopped = node_at(node);
    if (!stopped.is_alive) return;
    const int round = stopped.running->round;
    stopped.running.reset();
    tell_member(node, OwnStopped{round, std::exchange(stopped.failures, {})});
  });
}

void Cluster::act(int node, const End& end) {
  Node& self = node_at(node);
  require(!self.outcome, "a second outcome");
  require(!self.running, "an outcome while workers run");
  self.outcome = end.outcome;
}

void Cluster::kill(int node) {
  Node& self = node_at(node);
  if (!self.is_alive || self.outcome) return;
  self.is_alive = false;
  if (self.link) act(node, Disconnect{});
  if (node != 0) return;
  was_master_killed_ = true;
  is_master_up_ = false;
  for (auto& [peer, link] : links_) {
    if (!link.is_open_there) continue;
    link.is_open_there = false;
    carry_down(peer, [this, peer = peer, other = link.node] {
      close_here(peer);
      tell_member(other, ConnectionLost{"reset"});
    });
  }
}

// --- the coordinator

void Cluster::tell_round(const RoundEvent& event) {
  if (!is_master_up_) return;
  for (const RoundAction& action : step(round_, event, now_))
    std::visit([this](const auto& each) { act(each); }, action);
  const long tick = ++round_tick_;
  if (const auto wanted = deadline(round_)) {
    at(std::max(*wanted, now_), [this, tick] {
      if (round_tick_ == tick) tell_round(RoundTick{});
    });
  }
}

void Cluster::act(const SendTo& send) { send_down(send.peer, send.message); }

void Cluster::act(const SendResult& send) {
  for (const Requester& each : send.requesters) send_down(each.peer, result_for(each, send));
}

void Cluster::act(const SendAll& send) {
  for (const Peer peer : send.peers) send_down(peer, send.message);
}

void Cluster::send_down(Peer peer, const CoordinatorMessage& message) {
  if (const auto* ready = std::get_if<WorldReady>(&message))
    require(clear_count_ == ready->world.round + 1, "a world was sent before the store was empty");
  if (!links_[peer].is_open_there) return;
  carry_down(peer, [this, peer, frame = encode(message)] {
    note(frame);
    tell_member(links_[peer].node,
                Heard{decode_coordinator_message(std::string_view(frame).substr(4)).value()});
  });
}

void Cluster::act(const Drop& drop) {
  if (!links_[drop.peer].is_open_there) return;
  close_there(drop.peer);
  carry_down(drop.peer, [this, peer = drop.peer] {
    close_here(peer);
    tell_member(links_[peer].node, ConnectionLost{"closed"});
  });
}

// --- invariants

void Cluster::check_world(int node, const World& world) {
  int base = 0;
  int size = 0;
  for (int other = 0; other < static_cast<int>(nodes_.size()); ++other) {
    if (other == node) base = size;
    size += node_at(other).member.spec.join.local_world_size;
  }
  const Node& self = nodes_[static_cast<std::size_t>(node)];
  require(world.node_rank == node && world.base_rank == base && world.world_size == size &&
              world.role_base_rank == base && world.role_world_size == size &&
              world.local_world_size == self.member.spec.join.local_world_size,
          "a world with wrong ranks");
  require(world.round == world.restarts && world.round <= world.max_restarts,
          "more restarts than allowed");
  require(world.round >= self.world_count, "a round began twice");
  node_at(node).world_count = world.round + 1;
}

std::vector<Outcome> Cluster::outcomes() const {
  std::vector<Outcome> outcomes;
  for (const Node& node : nodes_) {
    if (node.is_alive && node.outcome) outcomes.push_back(*node.outcome);
  }
  return outcomes;
}

void Cluster::check_end() {
  std::optional<Outcome> common;
  for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) {
    const Node& node = node_at(rank);
    if (!node.is_alive) continue;
    require(node.outcome.has_value(), "a living node without an outcome");
    if (!node.outcome) continue;
    const Ending& ending = node.outcome->ending;
    if (const auto* lost = std::get_if<NodeLost>(&ending);
        lost != nullptr && lost->is_coordinator) {
      require(was_master_killed_ || node.was_cut, "a coordinator was taken for lost that was not");
      continue;
    }
    // A node that received no outcome decides its own.
    const bool is_alone = node.member.first_world == std::nullopt || was_master_killed_ ||
                          (node.was_cut && node.was_signaled);
    if (is_alone) continue;
    if (!common) common = node.outcome;
    require(*common == *node.outcome, "two nodes with different outcomes");
  }
  if (is_master_up_) require(is_over_, "the coordinator does not end");
  if (!common || !std::holds_alternative<Succeeded>(common->ending)) return;
  require(returned_[common->restarts].size() == nodes_.size(), "success without proof");
}

}  // namespace drun::test
