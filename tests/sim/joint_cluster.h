// Simulates a whole job with an elected coordinator in one process. Each host has an agent
// (agents.h). The first hosts also have a seat (election_network.h) and its office, which is the
// Server's part: it gives Coordination the connections of a simulated network. Hosts crash,
// restart, freeze and are cut off, and their clocks run at different rates. Invariants are checked
// during the run, and `check_end` checks the final state.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/server/coordination.h"
#include "tests/sim/agents.h"
#include "tests/sim/election_network.h"

namespace drun::test {

// Counts are of faults at random moments in the first 40 s; chances are percentages.
struct JointWeather : WorkerWeather {
  int seats = 3;
  int hosts = 4;
  int min_nodes = 2;
  int max_nodes = 4;
  int late_hosts = 0;
  int max_restarts = 0;
  int pause_ms = 0;  // --restart-backoff
  bool preflight = false;
  int crashes = 0;
  int leader_crashes = 0;
  int blinks = 0;  // crashes with a restart within 100 ms
  int comeback_chance = 75;
  int silence_chance = 0;  // per crash: other hosts do not see its connections close
  int leaves = 0;          // agents that get a signal
  int leader_leaves = 0;
  int drops = 0;    // connections that are reset
  int splits = 0;   // the network is partitioned into two groups for a while
  int cuts = 0;     // one direction between two hosts is cut for a while
  int freezes = 0;  // a host is frozen for a while
  int leader_freezes = 0;
  int drift = 0;  // maximum clock error in percent, fast or slow
  int longest_delay_ms = 40;
  int question_chance = 0;
};

JointWeather random_joint_weather(std::uint32_t seed);

class JointCluster final : private ElectionNetwork, private SimulatedAgents {
 public:
  JointCluster(const JointWeather& weather, std::uint32_t seed);

  void run();
  void check_end();

  using Simulation::broken;
  using Simulation::trace_hash;
  int worlds() const { return static_cast<int>(worlds_.size()); }
  int takeovers() const { return takeovers_; }
  int handovers() const { return handovers_; }
  // The longest time from a coordinator's resignation to the next world. Counts only resignations
  // at least two leases after the start.
  Milliseconds longest_handover() const { return longest_handover_; }
  int most_restarts() const { return most_restarts_; }
  // Whether a majority of seats had forgotten the rounds, and how often the job was ended.
  bool has_forgotten() const { return has_forgotten_; }
  int ends() const { return static_cast<int>(ends_.size()); }
  std::optional<Outcome> outcome() const;

 private:
  static constexpr Milliseconds kJoinTimeout{60'000}, kHeartbeatTimeout{3 * kLease};
  static constexpr Time kSettled{std::chrono::hours(1) + 2 * kLease};
  static constexpr int kAccidentsUntil = 40'000, kCalmFrom = 55'000;

  // The server of a seat, with its part of the election.
  class Office final : public rendezvous::Coordination::Host, public rendezvous::LeaderElection {
   public:
    Office(JointCluster& cluster, int host) : cluster_(cluster), host_(host) {}

    void open();
    void close();
    bool is_up() const { return is_up_; }
    rendezvous::Coordination& coordination() { return *coordination_; }
    void hear(const rendezvous::RoundEvent& event);
    void hear_backlog();
    void hear_news(const rendezvous::ElectionNews& news);
    void agent_ended();

    const std::map<Peer, std::string>& connections() const { return connections_; }
    bool was_failure() const { return was_failure_; }
    std::map<std::size_t, World> take_told() { return std::exchange(told_, {}); }

    // --- Coordination::Host
    Time now() const override { return cluster_.local(host_); }
    void apply(const rendezvous::SendTo& send) override;
    void apply(const rendezvous::SendAll& send) override;
    void apply(const rendezvous::SendResult& send) override;
    void apply(const rendezvous::ClearStore&) override;
    void hang_up(Peer peer) override;
    void release_members() override;
    void set_timer(std::optional<Time> at) override;
    void leader_known(const Endpoint& leader, std::uint64_t term) override;
    void leader_trouble(const std::string&) override {}
    void finished() override;
    void log(LogLevel, const std::string& text) override {
      cluster_.trace(host_, "round: " + text);
    }

    // --- LeaderElection
    void start() override { cluster_.start(host_); }
    void stop() override { cluster_.crash(host_); }
    void want_round(const rendezvous::RoundRecord& record) override {
      cluster_.tell(host_, rendezvous::RoundWanted{record.rounds});
    }
    bool leads() override { return cluster_.leads(host_); }
    bool has_successor() const override {
      return rendezvous::has_successor(cluster_.election(host_));
    }
    void resign() override;

   private:
    JointCluster& cluster_;
    const int host_;
    bool is_up_ = false;
    std::optional<rendezvous::Coordination> coordination_;  // of its current or last life
    std::map<Peer, std::string> connections_;               // addresses by peer
    std::deque<rendezvous::RoundEvent> backlog_;            // held back while frozen
    long tick_ = 0;
    bool was_failure_ = false;           // whether a failure stopped its last world
    std::map<std::size_t, World> told_;  // of the world that is being sent, by agent
  };
  struct ToldWorld {
    int host = 0;
    long life = 0;
    std::uint64_t term = 0;
    int round = 0;
    int restarts = 0;
    std::map<std::size_t, World> told{};
    std::set<std::size_t> returned{};
    std::map<std::size_t, Time> failures{};
  };
  struct ToldEnd {
    int host = 0;
    Time at;
    Outcome outcome;
    std::set<std::size_t> agents{};
  };
  // Between two hosts, or between one host and all others.
  struct Trouble {
    int host = 0;
    std::optional<int> other{};
    Time from;
    Time to;
  };

  // --- faults
  void plan_accidents();
  void happen(int count, const std::function<void()>& accident);
  int some_host() { return static_cast<int>(random_() % static_cast<unsigned>(weather_.hosts)); }
  void start_host(int host);
  void come_back(int host);
  void crash_host(int host);
  void fall(std::optional<int> host);
  void leave(std::optional<int> host);
  void blink();
  void part_network();
  void cut_way();
  void stand_still(std::optional<int> host);
  void go_on(int host);
  void calm();
  bool is_frozen(int host);
  void note_trouble(int host, std::optional<int> other, Milliseconds time);
  bool was_well(int one, int other, Time from, Time to) const;

  // --- for the agents
  bool has_seat(int host) const { return host < weather_.seats; }
  Office& office(int host) { return *offices_[static_cast<std::size_t>(host)]; }
  rendezvous::MemberSpec member_spec(int host) const;
  rendezvous::RoundSpec round_of(int host) const;
  int dialled(const Agent& agent) const override;
  bool listens(int host) const override;
  bool is_way_cut(int from, int to) const override { return is_cut(from, to); }
  void tell_coordinator(int host, const rendezvous::RoundEvent& event) override;
  void agent_ended(std::size_t agent) override;
  void worker_failed(std::size_t agent, int round) override;
  void workers_returned(std::size_t agent, int round) override;

  // --- news of the election, for the offices
  void on_leading(int host, const rendezvous::Leading& leading) override;
  void on_lead_lost(int host) override { office(host).hear_news(rendezvous::LeadLost{}); }
  void on_following(int host, const rendezvous::SeatFollowed& following) override;
  void on_vacant(int host) override { office(host).hear_news(rendezvous::Vacant{}); }
  void on_round_known(int host, int rounds) override;
  void on_resigned(int host) override { office(host).hear_news(rendezvous::Resigned{}); }

  // --- invariants
  void check_memory(const rendezvous::Leading& leading);
  void note_knowers(int host, int rounds);
  void check_world(int host);
  void check_preflight(const std::map<std::size_t, World>& told);
  void check_restarts(int host, const World& world);
  void check_old_workers(const std::map<std::size_t, World>& told);
  void check_told_end(const ToldEnd& end);
  void check_root(const ToldEnd& end, const Failure& root);
  ToldWorld* world_of(std::size_t agent, int round);

  const JointWeather weather_;
  std::vector<std::unique_ptr<Office>> offices_;
  std::vector<Trouble> troubles_;
  std::vector<ToldWorld> worlds_;
  std::vector<ToldEnd> ends_;
  std::map<int, long> lives_;    // number of starts, by seat
  std::map<int, long> knowers_;  // seats that certainly knew of the last round, and their lives
  int last_known_ = 0;           // number of rounds
  bool has_forgotten_ = false;
  int takeovers_ = 0;
  int handovers_ = 0;
  std::optional<Time> handed_over_;  // set until the next world begins
  Milliseconds longest_handover_{0};
  int failure_stops_ = 0;
  int most_restarts_ = 0;
};

}  // namespace drun::test
