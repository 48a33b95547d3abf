// The simulated servers of the seats.
#include <utility>

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

void JointCluster::Office::open() {
  is_up_ = true;
  connections_.clear();
  backlog_.clear();
  ++tick_;
  was_failure_ = false;
  told_.clear();
  ++cluster_.lives_[host_];
  Coordination::Host& self = *this;
  coordination_.emplace(self, cluster_.round_of(host_),
                        Endpoint{"host" + std::to_string(host_), 29400}, this);
  start();
}

void JointCluster::Office::close() {
  if (!std::exchange(is_up_, false)) return;
  cluster_.trace(host_, "its office is closed");
  ++tick_;
  coordination_->stop();
  stop();
  for (const auto& [peer, link] : cluster_.links_) {
    if (link.host == host_) cluster_.drop_link(peer, "reset");
  }
}

void JointCluster::tell_coordinator(int host, const RoundEvent& event) { office(host).hear(event); }

void JointCluster::Office::hear(const RoundEvent& event) {
  if (!is_up_) return;
  if (cluster_.is_frozen(host_)) return backlog_.push_back(event);
  if (const auto* left = std::get_if<PeerLeft>(&event)) {
    connections_.erase(left->peer);
    coordination_->left(left->peer, left->reason);
  } else if (const auto* arrived = std::get_if<PeerArrived>(&event)) {
    connections_.emplace(arrived->peer, arrived->address);
    coordination_->arrived(arrived->peer, arrived->address, arrived->message);
  } else {
    const auto& said = std::get<PeerSaid>(event);
    const auto from = connections_.find(said.peer);
    if (from != connections_.end()) coordination_->said(said.peer, from->second, said.message);
  }
  cluster_.check_world(host_);
}

void JointCluster::Office::hear_backlog() {
  for (const RoundEvent& event : std::exchange(backlog_, {})) hear(event);
  if (is_up_ && coordination_->is_leading()) coordination_->tick();
  cluster_.check_world(host_);
}

void JointCluster::Office::hear_news(const ElectionNews& news) {
  if (!is_up_) return;
  coordination_->on_news(news);
  cluster_.check_world(host_);
}

void JointCluster::Office::agent_ended() {
  if (is_up_ && !coordination_->coordinator_ended()) close();
}

// --- The coordination's actions

void JointCluster::Office::apply(const SendTo& send) {
  if (const auto* ready = std::get_if<WorldReady>(&send.message)) {
    const std::size_t agent = cluster_.links_[send.peer].agent;
    cluster_.require(told_.emplace(agent, ready->world).second, "one agent has two seats");
  }
  if (connections_.contains(send.peer)) cluster_.send_down(send.peer, send.message);
}

void JointCluster::Office::apply(const SendResult& send) {
  for (const Requester& each : send.requesters) {
    if (connections_.contains(each.peer)) cluster_.send_down(each.peer, result_for(each, send));
  }
}

void JointCluster::Office::apply(const SendAll& send) {
  cluster_.check_world(host_);  // worlds sent before this message
  if (const auto* stop = std::get_if<Stop>(&send.message)) {
    was_failure_ = stop->cause.find(" failed") != std::string::npos ||
                   stop->cause.find(" hung: ") != std::string::npos;
    cluster_.failure_stops_ += was_failure_ ? 1 : 0;
  }
  const auto* finish = std::get_if<Finish>(&send.message);
  if (finish != nullptr)
    cluster_.ends_.push_back({.host = host_, .at = cluster_.now_, .outcome = finish->outcome});
  for (const Peer peer : send.peers) {
    if (!connections_.contains(peer)) continue;
    if (finish != nullptr) cluster_.ends_.back().agents.insert(cluster_.links_[peer].agent);
    cluster_.send_down(peer, send.message);
  }
}

void JointCluster::Office::apply(const ClearStore&) {
  cluster_.check_world(host_);
  cluster_.require(is_leading(cluster_.election(host_), now()), "a world is begun without a lead");
}

void JointCluster::Office::hang_up(Peer peer) {
  if (connections_.erase(peer) > 0) cluster_.drop_link(peer, "closed");
}

void JointCluster::Office::release_members() {
  cluster_.check_world(host_);
  while (!connections_.empty()) hang_up(connections_.begin()->first);
}

void JointCluster::Office::set_timer(std::optional<Time> at) {
  const long tick = ++tick_;
  if (!at) return;
  cluster_.at_local(host_, *at, [this, tick] {
    if (tick_ != tick || cluster_.is_frozen(host_)) return;
    coordination_->tick();
    cluster_.check_world(host_);
  });
}

void JointCluster::Office::leader_known(const Endpoint& leader, std::uint64_t term) {
  if (Agent* const agent = cluster_.living(host_))
    cluster_.tell_member(cluster_.index_of(*agent), LeaderNamed{leader, term});
}

void JointCluster::Office::finished() {
  cluster_.later(Milliseconds(0), [this, life = cluster_.lives_[host_]] {
    if (cluster_.lives_[host_] == life) close();
  });
}

void JointCluster::Office::resign() {
  ++cluster_.handovers_;
  if (cluster_.now_ >= kSettled) cluster_.handed_over_ = cluster_.now_;
  cluster_.tell(host_, Resign{});
}

// --- News of the election

void JointCluster::on_leading(int host, const Leading& leading) {
  trace(host, "leads, term " + std::to_string(leading.term));
  if (!office(host).coordination().is_leading()) check_memory(leading);
  office(host).hear_news(leading);
}

void JointCluster::on_following(int host, const SeatFollowed& following) {
  office(host).hear_news(
      Following{{"host" + std::to_string(following.seat), 29400}, following.term});
}

void JointCluster::on_round_known(int host, int rounds) {
  note_knowers(host, rounds);
  office(host).hear_news(RoundKnown{rounds});
}

}  // namespace drun::test
