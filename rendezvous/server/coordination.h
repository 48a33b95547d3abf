// core. Coordinates the job while this agent leads, and otherwise sends members to the leader. Runs
// the state machine of round.h and applies its actions through a Host, which has the connections:
// the Server, or a simulation (tests/sim/joint_office.cc).
//
//   without an election   leads from the start
//   with one              Standby: a member's hello is answered with the leader, at once or when
//                         one is known. Leading: members' messages are events of the round
//
//   Leading (news)     new round, with what is known of the earlier rounds; members that wait for
//                      the leader become its own
//   LeadLost           releases all members, unless it is sending the outcome (RoundFence)
//   RoundKnown         applies the actions that RoundFence held back
//   StepDown (action)  releases all members, and resigns
//
// Order:   an event that comes while another one is handled waits until that one is done.
// Lead:    checked before each event, because the lead may expire while this process is stopped.
// Time:    the Host's. Use it on one thread; it makes no calls after stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/round_events.h"
#include "rendezvous/coordinator/round_state.h"
#include "rendezvous/coordinator/takeover.h"
#include "rendezvous/leader/leader_election.h"

namespace drun::rendezvous {

// Members that ask a seat for the leader. The answer is immediate if the seat knows a leader that
// the member has not lost. Otherwise the member waits until a leader is known or this seat leads.
// At most kMost members wait; others are refused.
class LeaderLookups {
 public:
  // Returns the answer if there is one. Otherwise the member waits, unless too many wait already.
  std::optional<Follow> ask(Newcomer asking) {
    if (leader_ && leader_->term > asking.hello.lost_term) return leader_;
    if (waiting_.size() < kMost) waiting_.emplace(asking.peer, std::move(asking));
    return std::nullopt;
  }
  bool has(Peer peer) const { return waiting_.contains(peer); }
  void leave(Peer peer) { waiting_.erase(peer); }

  // The members that can be answered now; removes them.
  std::vector<Peer> know(Follow leader) {
    std::vector<Peer> told;
    for (const auto& [peer, asking] : waiting_) {
      if (leader.term > asking.hello.lost_term) told.push_back(peer);
    }
    for (const Peer peer : told) waiting_.erase(peer);
    leader_ = std::move(leader);
    return told;
  }
  void forget_leader() { leader_.reset(); }

  // This seat leads: removes and returns all waiting members, which become its own.
  std::vector<Newcomer> take_all() {
    std::vector<Newcomer> all;
    for (auto& [peer, asking] : waiting_) all.push_back(std::move(asking));
    waiting_.clear();
    return all;
  }

 private:
  static constexpr std::size_t kMost = 8192;
  std::optional<Follow> leader_;
  std::map<Peer, Newcomer> waiting_;
};

class Coordination {
 public:
  // Ignores peers whose connection has ended. Calls back only through `election`.
  class Host {
   public:
    virtual Time now() const = 0;
    virtual void apply(const SendTo& send) = 0;
    virtual void apply(const SendAll& send) = 0;
    virtual void apply(const SendResult& send) = 0;
    // Empties the store and closes the connections of old workers, if there is a store.
    virtual void apply(const ClearStore& clear) = 0;
    // Closes the connection once all pending messages are sent.
    virtual void hang_up(Peer peer) = 0;
    // Hangs up on everyone who has said hello, and empties the store.
    virtual void release_members() = 0;
    // When tick() is to be called; replaces the previous time. nullopt: never.
    virtual void set_timer(std::optional<Time> at) = 0;
    virtual void leader_known(const Endpoint& leader, std::uint64_t term) = 0;
    virtual void leader_trouble(const std::string& reason) = 0;
    // The job is over here, or another agent continues it: no further call is needed.
    virtual void finished() = 0;
    virtual void log(LogLevel level, const std::string& text) = 0;

   protected:
    ~Host() = default;
  };

  // `self`: where members reach this agent. `election`: null if no other agent may coordinate.
  // `host` and `election` must outlive it.
  Coordination(Host& host, RoundSpec spec, Endpoint self, LeaderElection* election);

  // The first message of a connection, and the later ones.
  void arrived(Peer peer, const std::string& address, MemberMessage message);
  void said(Peer peer, const std::string& address, MemberMessage message);
  // The connection has ended.
  void left(Peer peer, const std::string& reason);
  void tick() { handle(RoundTick{}); }
  void on_news(const ElectionNews& news);
  void set_deadline(std::optional<JobDeadline> deadline);
  // This agent has its outcome. Returns false if nothing follows. Otherwise finished() does. With
  // an election, another agent takes over unless the job is over.
  bool coordinator_ended();
  void stop();

  bool is_leading() const { return is_leading_; }
  // Of this agent's round, or of an empty one while it does not lead.
  const RoundState& round() const { return state_; }

 private:
  void stand_by(Peer peer, const std::string& address, const Hello* hello);
  void reply(Peer peer, CoordinatorMessage message);
  void hang_up(Peer peer);
  void release_members();
  void handle(RoundEvent event);
  void take_turns();
  bool may_act();
  bool must_wait(const RoundAction& action);
  void arm_timer();

  void hear(const Leading& lead);
  void hear(const LeadLost& lost);
  void hear(const Following& following);
  void hear(const Vacant&) { lookups_.forget_leader(); }
  void hear(const RoundKnown& known);
  void hear(const LeaderTrouble& trouble) { host_.leader_trouble(trouble.reason); }
  void hear(const Resigned&) { host_.finished(); }

  void apply_any(const RoundAction& action);
  template <typename Action>
  void apply(const Action& action) {
    host_.apply(action);
  }
  void apply(const Drop& drop) { hang_up(drop.peer); }
  void apply(const LogLine& line) { host_.log(line.level, line.text); }
  void apply(const RoundOver&);
  void apply(const StepDown&);

  Host& host_;
  const RoundSpec spec_;
  const Endpoint self_;
  LeaderElection* const election_;
  RoundState state_;
  std::deque<RoundEvent> events_;
  bool is_turning_ = false;
  bool is_stopped_ = false;
  bool is_leading_ = false;
  bool is_stepping_down_ = false;  // until Resigned
  std::optional<JobDeadline> deadline_;
  LeaderLookups lookups_;
  RoundFence fence_;
};

}  // namespace drun::rendezvous
