// Simulates a whole job in one process, elastic or with a fixed number of nodes: one coordinator's
// Round and the agents of agents.h, which join late, leave, are killed, are restarted and freeze.
// Invariants are checked during the run, and `check_end` checks the final state. `broken` holds the
// first violation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tests/sim/agents.h"

namespace drun::test {

// Faults that may occur in one run. Counts are of faults at random moments; chances are
// percentages.
struct Weather : WorkerWeather {
  int hosts = 3;  // host 0 is the coordinator's
  int min_nodes = 2;
  int max_nodes = 3;
  bool is_fixed = false;             // host N is node N; needs as many nodes as hosts
  std::optional<int> absent_host{};  // never starts
  int late_hosts = 0;                // the last N hosts start while the job runs
  int max_restarts = 0;
  int kills = 0;
  int comeback_chance = 0;  // per agent that was killed or ended with a lost node
  int leaves = 0;           // agents that get a signal
  int drops = 0;            // connections that are reset
  int cuts = 0;             // connections that fall silent
  int freezes = 0;          // agents that freeze for up to 30 s
  int twins = 0;            // second agents with the identity of a living one
  int reboots = 0;          // hosts whose agent restarts while its old connection is silent
  int kill_master_chance = 0;
  int signal_master_chance = 0;
  int pause_ms = 0;       // --restart-backoff
  int exclude_after = 0;  // --exclude-after
  bool preflight = false;
  int question_chance = 0;  // per host: asks once for all stacks and for the job's status
};

// A job with a fixed number of nodes, without faults.
Weather fixed_weather(int nodes);

// Random faults that depend on the seed alone, on 3 to 50 hosts of an elastic job, and on one to
// six of a fixed one.
Weather random_weather(std::uint32_t seed);
Weather random_fixed_weather(std::uint32_t seed);

class Cluster final : public SimulatedAgents {
 public:
  Cluster(const Weather& weather, std::uint32_t seed);

  void run();
  void check_end();

  // The outcome of the first host whose agent was not killed.
  std::optional<Outcome> outcome() const;
  int rounds() const { return worlds_; }
  int restarts() const { return static_cast<int>(round_.restarts.size()); }
  std::size_t left_out() const { return round_.exclusions.nodes.size(); }

 private:
  static constexpr Milliseconds kJoinTimeout{60'000}, kHeartbeatTimeout{10'000};
  static constexpr int kLongestDelay = 40, kAccidentsUntil = 40'000;

  void plan_accidents();
  rendezvous::RoundSpec round_spec() const;
  rendezvous::MemberSpec member_spec(int host) const;
  void start_host(int host);
  void come_back(int host);
  void kill_master();

  bool listens(int) const override { return is_master_up_ && !is_over_; }
  void tell_coordinator(int, const rendezvous::RoundEvent& event) override { tell_round(event); }
  void agent_ended(std::size_t agent) override;
  void worker_failed(std::size_t agent, int round) override;
  void workers_returned(std::size_t agent, int round) override { returned_[round].insert(agent); }

  void tell_round(const rendezvous::RoundEvent& event);
  void act(const rendezvous::SendTo& send);
  void act(const rendezvous::SendAll& send);
  void act(const rendezvous::SendResult& send);
  void act(const rendezvous::Drop& drop) { drop_link(drop.peer, "closed"); }
  void act(const rendezvous::ClearStore&) { ++clear_count_; }
  void act(const LogLine& line) { trace(0, "round: " + line.text); }
  void act(const rendezvous::RoundOver&) { is_over_ = true; }
  void act(const rendezvous::StepDown&) { require(false, "no other node can coordinate"); }
  void note_world(Peer peer, const rendezvous::CoordinatorMessage& message);

  // Checks the worlds that were sent in this turn of the coordinator.
  void check_worlds();
  void check_restarts(const World& world);
  void check_left_out();
  bool is_left_out(int host) const;
  void check_first_failure(const Failure& root);
  // The outcome that the coordinator's own agent got, unless it was killed.
  std::optional<Outcome> common_outcome() const;
  bool shares_outcome(const Agent& agent) const;

  const Weather weather_;
  rendezvous::RoundState round_;
  bool is_master_up_ = false;
  bool was_master_killed_ = false;
  bool is_over_ = false;
  long round_tick_ = 0;
  int clear_count_ = 0;
  int worlds_ = 0;
  std::map<std::size_t, World> told_;       // sent in this turn
  std::map<std::size_t, World> last_told_;  // the last complete world
  std::map<int, std::set<std::size_t>> returned_;
  bool was_failure_ = false;            // whether a failure stopped the last world
  std::map<int, Time> first_failures_;  // by round, on any node
};

}  // namespace drun::test
