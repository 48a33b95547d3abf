// The simulated server of a seat. Follows server/server.cc step by step.
#include <utility>

#include "rendezvous/coordinator/membership.h"
#include "rendezvous/coordinator/takeover.h"
#include "tests/sim/joint_cluster.h"
#include "tests/support/round_driver.h"

namespace drun::test {

using namespace rendezvous;

// As agent/supervise/coordinator_seat.cc does: workers meet on the seat's own host.
RoundSpec JointCluster::round_of(int host) const {
  JoinSpec join = member_spec(host).join;
  join.master_addr = join.endpoint.host;
  join.make_stack_answers = agent::make_merged_stacks;
  return round_spec(join, 29400);
}

void JointCluster::open_office(int host) {
  Office fresh;
  fresh.tick = office(host).tick + 1;
  fresh.is_up = true;
  fresh.round = open_round(round_of(host), local(host));
  office(host) = std::move(fresh);
  ++lives_[host];
  start(host);
}

void JointCluster::close_office(int host) {
  Office& self = office(host);
  if (!std::exchange(self.is_up, false)) return;
  trace(host, "its office is closed");
  ++self.tick;
  self.is_leading = false;
  self.events.clear();
  crash(host);
  for (const auto& [peer, link] : links_) {
    if (link.host == host) drop_link(peer, "reset");
  }
}

void JointCluster::close_soon(int host) {
  later(Milliseconds(0), [this, host, life = lives_[host]] {
    if (lives_[host] == life) close_office(host);
  });
}

void JointCluster::tell_coordinator(int host, const RoundEvent& event) {
  if (!office(host).is_up) return;
  if (is_frozen(host)) return office(host).backlog.push_back(event);
  hear(host, event);
}

void JointCluster::hear(int host, const RoundEvent& event) {
  Office& self = office(host);
  if (!self.is_up) return;
  if (const auto* left = std::get_if<PeerLeft>(&event)) {
    forget(host, left->peer);
    if (self.is_leading) handle(host, *left);
    return;
  }
  if (const auto* arrived = std::get_if<PeerArrived>(&event)) {
    self.connections.emplace(arrived->peer, arrived->address);
    if (self.is_leading) return handle(host, *arrived);
    return stand_by(host, arrived->peer, std::get_if<Hello>(&arrived->message));
  }
  const auto& said = std::get<PeerSaid>(event);
  if (!self.connections.contains(said.peer)) return;
  if (!self.is_leading) return stand_by(host, said.peer, std::get_if<Hello>(&said.message));
  handle(host, said);
}

void JointCluster::stand_by(int host, Peer peer, const Hello* hello) {
  Office& self = office(host);
  if (hello == nullptr || self.seekers.has(peer)) return hang_up(host, peer);
  if (const auto error = objection(self.round, *hello)) {
    send_down(peer, Refused{*error});
    return hang_up(host, peer);
  }
  if (const auto answer = self.seekers.ask({peer, self.connections.at(peer), *hello}))
    send_down(peer, *answer);
  if (!self.seekers.has(peer)) hang_up(host, peer);
}

void JointCluster::hang_up(int host, Peer peer) {
  if (!office(host).connections.contains(peer)) return;
  drop_link(peer, "closed");
  forget(host, peer);
}

void JointCluster::forget(int host, Peer peer) {
  office(host).connections.erase(peer);
  office(host).seekers.leave(peer);
}

void JointCluster::handle(int host, RoundEvent event) {
  office(host).events.push_back(std::move(event));
  if (!office(host).is_turning) take_turns(host);
}

void JointCluster::take_turns(int host) {
  Office& self = office(host);
  self.is_turning = true;
  while (!self.events.empty() && self.is_up && may_act(host)) {
    const RoundEvent next = std::move(self.events.front());
    self.events.pop_front();
    self.round.has_successor = has_successor(election(host));
    for (const RoundAction& action : step(self.round, next, local(host))) {
      if (!must_wait(host, action)) apply(host, action);
    }
    check_world(host);
  }
  self.is_turning = false;
  if (self.is_up && self.is_leading) arm(host);
}

bool JointCluster::may_act(int host) {
  Office& self = office(host);
  if (leads(host) || (self.is_leading && tells_the_end(self.round))) return true;
  self.events.clear();
  return false;
}

bool JointCluster::must_wait(int host, const RoundAction& action) {
  Office& self = office(host);
  const RoundFence::Verdict verdict = self.tenure.judge(self.round, action);
  if (verdict == RoundFence::Verdict::Ask) tell(host, RoundWanted{record_of(self.round).rounds});
  return verdict != RoundFence::Verdict::Do;
}

void JointCluster::arm(int host) {
  std::optional<Time> wanted = deadline(office(host).round);
  if (wanted && !leads(host))
    wanted = std::max(*wanted, local(host) + std::chrono::milliseconds(100));
  const long tick = ++office(host).tick;
  if (!wanted) return;
  at_local(host, *wanted, [this, host, tick] {
    if (office(host).tick == tick && !is_frozen(host)) handle(host, RoundTick{});
  });
}

void JointCluster::name_leader(int host, int leader, std::uint64_t term) {
  if (Agent* const agent = living(host))
    tell_member(index_of(*agent), LeaderNamed{{"host" + std::to_string(leader), 29400}, term});
}

// --- election events

void JointCluster::on_leading(int host, const Leading& leading) {
  Office& self = office(host);
  if (self.is_leading) return;
  trace(host, "leads, term " + std::to_string(leading.term));
  check_memory(leading);
  self.round = self.tenure.begin(round_of(host), leading.term, leading.before, local(host));
  self.is_leading = true;
  name_leader(host, host, leading.term);
  for (LeaderLookups::Asking& asking : self.seekers.take_all()) {
    handle(host, PeerArrived{asking.peer, asking.address, std::move(asking.hello)});
  }
  arm(host);
}

void JointCluster::on_lead_lost(int host) {
  Office& self = office(host);
  const RoundFence::Loss loss = self.tenure.lose(self.round);
  if (loss == RoundFence::Loss::Over) return apply(host, RoundOver{});
  if (loss == RoundFence::Loss::Kept) return;
  trace(host, "does not lead any more");
  release_members(host);
}

void JointCluster::release_members(int host) {
  Office& self = office(host);
  self.is_leading = false;
  self.events.clear();
  ++self.tick;
  std::vector<Peer> members;
  for (const auto& [peer, address] : self.connections) members.push_back(peer);
  for (const Peer peer : members) hang_up(host, peer);
  self.round = open_round(round_of(host), local(host));
}

void JointCluster::on_following(int host, const SeatFollowed& following) {
  Office& self = office(host);
  if (self.is_leading) return;
  const Follow follow{"host" + std::to_string(following.seat), 29400, following.term};
  for (const Peer peer : self.seekers.know(follow)) {
    send_down(peer, follow);
    hang_up(host, peer);
  }
  name_leader(host, following.seat, following.term);
}

void JointCluster::on_round_known(int host, int rounds) {
  Office& self = office(host);
  note_knowers(host, rounds);
  const std::vector<RoundAction> held = self.tenure.know(rounds);
  if (held.empty()) return;
  const bool was_turning = std::exchange(self.is_turning, true);
  for (const RoundAction& action : held) apply(host, action);
  check_world(host);
  if (!was_turning) take_turns(host);
}

// --- actions of the round

void JointCluster::apply(int host, const RoundAction& action) {
  std::visit([this, host](const auto& wanted) { apply(host, wanted); }, action);
}

void JointCluster::apply(int host, const SendTo& send) {
  Office& self = office(host);
  if (const auto* ready = std::get_if<WorldReady>(&send.message)) {
    const std::size_t agent = links_[send.peer].agent;
    require(self.told.emplace(agent, ready->world).second, "one agent has two seats");
  }
  if (self.connections.contains(send.peer)) send_down(send.peer, send.message);
}

void JointCluster::apply(int host, const SendResult& send) {
  for (const Requester& each : send.requesters) {
    if (office(host).connections.contains(each.peer)) send_down(each.peer, result_for(each, send));
  }
}

void JointCluster::apply(int host, const SendAll& send) {
  Office& self = office(host);
  check_world(host);  // worlds sent before this message
  if (const auto* stop = std::get_if<Stop>(&send.message)) {
    self.was_failure = stop->cause.find(" failed") != std::string::npos ||
                       stop->cause.find(" hung: ") != std::string::npos;
    failure_stops_ += self.was_failure ? 1 : 0;
  }
  const auto* finish = std::get_if<Finish>(&send.message);
  if (finish != nullptr) ends_.push_back({.host = host, .at = now_, .outcome = finish->outcome});
  for (const Peer peer : send.peers) {
    if (!self.connections.contains(peer)) continue;
    if (finish != nullptr) ends_.back().agents.insert(links_[peer].agent);
    send_down(peer, send.message);
  }
}

void JointCluster::apply(int host, const ClearStore&) {
  require(is_leading(election(host), local(host)), "a world is begun without a lead");
  office(host).told.clear();
}

void JointCluster::apply(int host, const StepDown&) {
  Office& self = office(host);
  trace(host, "hands the job over");
  ++handovers_;
  if (now_ >= kSettled) handed_over_ = now_;
  self.is_stepping_down = true;
  release_members(host);
  tell(host, Resign{});
}

}  // namespace drun::test
