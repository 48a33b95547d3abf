// core. One turn of the round's machine: the state, the time, and the actions as they come. Only
// round.cc (who is connected), round_worlds.cc (worlds begin and end), round_looking.cc (what
// workers do), round_census.cc (how nodes are) and round_line.cc (elastic worlds) include it.
//
// Owner:   lives for one step.   Thread: any.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/round/round.h"

namespace drun::rendezvous {

constexpr const char* kBrokeProtocol = "it broke the control protocol";

class RoundTurn {
 public:
  RoundTurn(RoundState& state, Time now) : state_(state), now_(now) {}

  void handle(const PeerArrived& arrived);
  void handle(const PeerSaid& said);
  void handle(const PeerLeft& left);
  void handle(const HostEnded&);
  void handle(const SuccessorKnown& known) { state_.has_successor = known.is_there; }
  void handle(const RoundTick&);

  std::vector<RoundAction> take_actions() { return std::move(actions_); }
  void conclude_census();   // round_census.cc
  void conclude_records();  // round_records.cc

 private:
  // round.cc
  void greet(Peer peer, const MemberMessage& message);
  enum class Identity { Check, Settled };  // whether another agent may hold the newcomer's
  void admit(Peer peer, const Hello& hello, const std::string& address,
             Identity identity = Identity::Check);
  void take_place(Peer peer, const Hello& hello);
  void drop_member(int node, const std::string& reason);
  void over_if_alone();
  void sweep();
  void time_is_up();

  // round_worlds.cc
  void say(int node, const Hello&) { drop_member(node, "a second hello"); }
  void say(int node, const Failed& failed);
  void say(int node, const AllReturned& returned);
  void say(int node, const Stopped& stopped);
  void say(int node, const Signalled& signalled);
  void say(int node, const Ping&) { send(node_at(node).peer, Pong{}); }
  void say(int node, const Ballot&) { drop_member(node, kBrokeProtocol); }
  void say(int, const Lines&) {}  // for the desk (lines/line_desk.h)
  void begin_world();
  void stop_round(std::string cause, bool is_failure);
  void end_with(Ending ending, std::string cause);
  void conclude_if_stopped();
  void restart();
  bool leave_out_unusable();
  bool can_do_without(int node) const;
  void check_failed();
  bool ends_by_failure() const;
  void next_world();
  void finish(Ending ending);
  void node_left(int node, const std::string& reason);
  bool add_failure(int node, const AgedFailure& aged);
  bool is_current(int node, int round);
  void mark_done(int node);
  std::optional<std::string> no_restart() const;

  // round_looking.cc
  void say(int node, const StacksAsked& asked);
  void say(int node, const EvidenceGiven& given);
  void say(int node, const HangSuspected& suspected);
  void look();
  void look_tick();
  void look_lost(int node, const std::string& reason);
  void conclude_look();
  void judge_hang(const Evidence& evidence);
  void end_look();

  // round_records.cc
  void record(const AgentId& id);
  void send_records();
  void tell_restarts();
  void tell_records(Peer peer);
  void hear_of_past(const Past& past);
  void turn_out(const AgentId& id);

  // round_census.cc
  void say(int node, const CensusAsked& asked) { census_asked(node_at(node).peer, asked.question); }
  void say(int node, const NodeTold& told) { node_told(node_at(node).peer, told); }
  void census_asked(Peer peer, std::uint64_t question);
  void node_told(Peer peer, const NodeTold& told);
  void take_census();

  // round_line.cc
  void say(int node, const LivenessReply& reply) {
    refuse_claimants(node_at(node).peer, reply.check);
  }
  bool is_contested(Peer peer, const Hello& hello, const std::string& address);
  void refuse_claimants(Peer holder, std::uint64_t check);
  void settle_contests();
  void admit_claimants(const std::vector<IdentityContests::Claimant>& claimants);
  void drop_claimants();
  void admit_to_line(Peer peer, const Hello& hello, const std::string& address);
  void waiter_said(Peer peer, const MemberMessage& message);
  void waiter_left(Peer peer, const std::string& reason);
  void drop_waiter(Peer peer, const std::string& reason);
  void lose_seat(int node, const std::string& reason);
  bool can_leave(int node) const;
  void let_go(int node, int signal);
  void dismiss(int node);
  void vacate(int node, const Ending& ending);
  std::optional<int> leaving_host() const;
  void step_down();
  void leave_out_culprit();
  void leave_out_node(int node, std::string reason, Ending ending);
  void form_world(bool is_at_once);
  void line_sweep();
  void waited_too_long();

  RoundNode& node_at(int node) { return state_.nodes[static_cast<std::size_t>(node)]; }
  const RoundNode& node_at(int node) const { return state_.nodes[static_cast<std::size_t>(node)]; }
  std::string name_of(int node) const;
  std::vector<Peer> present_peers() const;
  bool is_elastic() const { return state_.spec.elastic.has_value(); }

  void send(Peer peer, CoordinatorMessage message) {
    actions_.emplace_back(SendTo{peer, std::move(message)});
  }
  void send_all(CoordinatorMessage message) {
    actions_.emplace_back(SendAll{present_peers(), std::move(message)});
  }
  void answer(std::vector<Asker> askers, std::shared_ptr<const CoordinatorMessage> message) {
    if (!askers.empty()) actions_.emplace_back(SendAnswer{std::move(askers), std::move(message)});
  }
  void drop(Peer peer) {
    state_.census.missing.erase(peer);
    actions_.emplace_back(Drop{peer});
  }
  void log(LogLevel level, std::string text) {
    actions_.emplace_back(RoundLog{level, std::move(text)});
  }

  RoundState& state_;
  const Time now_;
  std::vector<RoundAction> actions_;
};

}  // namespace drun::rendezvous
