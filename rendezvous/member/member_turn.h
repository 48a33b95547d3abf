// core. One turn of the member's machine: the state, the time, and the actions as they come. Only
// member.cc (what is said and done), member_link.cc (the connection), member_seats.cc (whom to ask)
// and member_looking.cc include it.
// Owner:   lives for one step.   Thread: any.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/member/member.h"

namespace drun::rendezvous {

class MemberTurn {
 public:
  MemberTurn(MemberState& state, Time now) : state_(state), now_(now) {}

  void handle(const MemberStart&);
  void handle(const Connected&);
  void handle(const ConnectFailed& failed);
  void handle(const WrongPeer& wrong);
  void handle(const OtherCoordinator& other);
  void handle(const LeaderNamed& named);
  void handle(const LeaderUnknown& unknown);
  void handle(const Heard& heard);
  void handle(const ConnectionLost& lost);
  void handle(const OwnFailure& own);
  void handle(const OwnSuccess& own);
  void handle(const OwnStopped& own);
  void handle(const OwnSignal& own);
  void handle(const OwnQuestion& own);
  void handle(const OwnEvidence& own);
  void handle(const OwnSuspicion& own);
  void handle(const OwnCensusQuestion& own);
  void handle(const OwnSummary& own);
  void handle(const MemberTick&);

  std::vector<MemberAction> take_actions() { return std::move(actions_); }

 private:
  void hear(const Welcome& welcome);
  void hear(const Waiting& waiting);
  void hear(const Refused& refused);
  void hear(const WorldReady& ready);
  void hear(const Stop& stop);
  void hear(const Finish& finish);
  void hear(const Pong&) {}
  void hear(const LinesTaken&) {}  // for who sends them (client.h)
  void hear(const TellStacks& tell);
  void hear(const StacksTold& told);
  void hear(const HangFound& found);
  void hear(const NodeLeftOut& told);
  void hear(const Remember& told);
  void hear(const TellNode& tell);
  void hear(const CensusTold& told);
  void hear(const LivenessCheck& check);
  void hear(const Vote&) { broken("a vote"); }
  void hear(const Follow& follow);

  void aim(const Endpoint& endpoint);
  void aim_at_next();
  void dial();
  void ask_elsewhere(std::string trouble);
  void rest(std::string trouble);
  void connection_lost(const std::string& reason);
  void no_answer();
  Time::duration jittered(Milliseconds longest);
  void broken(const std::string& what);
  void part(const std::string& reason);
  void rejoin();
  void give_up(Error error);
  void end(Ending ending);
  void end_once_stopped(std::optional<Outcome> outcome);
  void conclude(Outcome outcome);
  void keep_alive();
  void report_trouble();
  void leave(std::optional<Time> by);

  bool is_in(std::initializer_list<MemberPhase> phases) const {
    return std::find(phases.begin(), phases.end(), state_.phase) != phases.end();
  }
  bool is_elastic() const { return state_.spec.join.elastic.has_value(); }
  bool has_seats() const { return !state_.spec.join.seats.empty(); }
  // Whoever etcd named may have gone since, and its port be another program's.
  std::size_t most_wrong_answers() const {
    return std::max<std::size_t>(state_.spec.join.seats.size(), state_.spec.join.etcd ? 3 : 1);
  }
  // With one endpoint of several.
  Milliseconds patience() const {
    return std::min<Milliseconds>(state_.spec.join.heartbeat_timeout / 2, std::chrono::seconds(5));
  }
  bool is_round(int round) const { return state_.world && state_.world->round == round; }
  Time join_by() const {
    return state_.rejoin_by.value_or(state_.started + state_.spec.join.join_timeout);
  }
  // Its age counts from now. Requires that there is one.
  AgedFailure first_own_failure() const {
    const FailureList::Entry& first = state_.own_failures.entries().front();
    return {short_failure(first.failure),
            std::chrono::duration_cast<std::chrono::microseconds>(now_ - first.moment)};
  }
  Milliseconds time_left() const {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(join_by() - now_));
  }
  void say(MemberMessage message) { actions_.emplace_back(Say{std::move(message)}); }
  void log(LogLevel level, std::string text) {
    actions_.emplace_back(MemberLog{level, std::move(text)});
  }

  MemberState& state_;
  const Time now_;
  std::vector<MemberAction> actions_;
};

}  // namespace drun::rendezvous
