// A whole elastic job in one process: one coordinator's Round, a Member for each life of each
// agent, on a clock that jumps from event to event and a network that delays, loses connections and
// falls silent. Agents join late, leave, are killed, started again, frozen. Messages travel as
// bytes. What must hold at any time is checked on the way, what must hold at the end by
// `check_end`; the first thing that does not is kept in `broken`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/member/member.h"
#include "rendezvous/round/round.h"

namespace drun::test {

// What may happen in one run. Counts are of accidents at random moments; chances are per cent.
struct ElasticWeather {
  int hosts = 3;  // the first is the coordinator's
  int min_nodes = 2;
  int max_nodes = 3;
  int late_hosts = 0;  // of them, so many start in the middle
  int max_restarts = 0;
  int failure_chance = 0;  // of each node, in each round
  int kills = 0;
  int comeback_chance = 0;  // of an agent that was killed, or ended by a loss
  int leaves = 0;           // agents that get a signal
  int drops = 0;            // connections that break
  int cuts = 0;             // connections that fall silent
  int freezes = 0;          // agents that stand still for a while
  int kill_master_chance = 0;
  int signal_master_chance = 0;
  int pause_ms = 0;       // --restart-backoff
  int exclude_after = 0;  // --exclude-after
  bool preflight = false;
  int bad_hosts = 0;        // from the second on: their workers fail nine times in ten
  int hang_chance = 0;      // of each node, in each round
  int mute_chance = 0;      // of each answer to a look or a census: it never comes
  int question_chance = 0;  // of each host: asks what all do and how all are, once
};

// One that depends on the seed alone: from 3 to 50 hosts, with any of the accidents.
ElasticWeather random_weather(std::uint32_t seed);

class ElasticCluster {
 public:
  ElasticCluster(const ElasticWeather& weather, std::uint32_t seed);

  void run();
  void check_end();

  // Empty: nothing is wrong.
  const std::string& broken() const { return broken_; }
  // Of the coordinator's own agent, if it lived to tell it.
  std::optional<Outcome> outcome() const;
  int rounds() const { return worlds_; }
  int restarts() const { return static_cast<int>(round_.restarts.size()); }
  int hangs_shown() const { return hangs_shown_; }
  int censuses_told() const { return censuses_told_; }
  std::size_t left_out() const { return round_.exclusions.nodes.size(); }

 private:
  using Peer = rendezvous::Peer;
  using Time = rendezvous::Time;
  using Milliseconds = rendezvous::Milliseconds;
  static constexpr Milliseconds kJoinTimeout{60'000}, kHeartbeatTimeout{10'000}, kHangTimeout{1000};
  static constexpr int kLongestStop = 3000, kLongestRound = 12'000, kLongestDelay = 40;
  static constexpr int kLongestLook = 4000, kAccidentsUntil = 40'000;

  // One process. Host and slot outlive it.
  struct Agent {
    int host = 0;
    rendezvous::MemberState member;
    bool is_alive = true;
    bool was_hurt = false;  // its link was cut or broken, or it was frozen
    bool is_frozen = false;
    bool was_signalled = false;
    std::deque<rendezvous::MemberEvent> backlog;  // while frozen
    std::optional<Peer> link;
    long tick = 0;
    std::optional<World> running;
    bool is_stopping = false;
    std::vector<rendezvous::AgedFailure> failures;
    std::optional<Outcome> outcome;
    bool is_hung = false;  // its first worker, in `running`
    int questions = 0;
    std::set<std::uint64_t> told;
    std::set<std::uint64_t> censuses;
  };
  // One connection. Each direction keeps its order; `*_free` is when the last one arrives.
  struct Link {
    std::size_t agent = 0;
    bool is_open_here = true;   // at the member
    bool is_open_there = true;  // at the coordinator
    bool is_cut = false;
    Time up_free;
    Time down_free;
  };

  int percent() { return static_cast<int>(random_() % 100); }
  Milliseconds between(int low, int high) {
    return Milliseconds(low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)));
  }
  void later(Milliseconds delay, std::function<void()> deed) { at(now_ + delay, std::move(deed)); }
  void at(Time when, std::function<void()> deed);
  void plan_accidents();
  void start_agent(int host);
  void come_back(int host);
  // The life of `host` that goes on, if one does.
  Agent* living(int host);
  std::size_t index_of(const Agent& agent) const;

  void carry_up(Peer peer, std::function<void()> deed);
  void carry_down(Peer peer, std::function<void()> deed);
  void close_here(Peer peer);
  void close_there(Peer peer) { links_[peer].is_open_there = false; }

  void tell_member(std::size_t agent, const rendezvous::MemberEvent& event);
  void act(std::size_t agent, const rendezvous::Connect&);
  void act(std::size_t agent, const rendezvous::Say& say);
  void act(std::size_t agent, const rendezvous::Disconnect&);
  void act(std::size_t agent, const rendezvous::StartWorkers& start);
  void act(std::size_t agent, const rendezvous::StopWorkers& stop);
  void act(std::size_t agent, const rendezvous::End& end);
  void act(std::size_t, const rendezvous::MemberLog&) {}
  void act(std::size_t agent, const rendezvous::LookAtWorkers& look);
  void act(std::size_t agent, const rendezvous::Told& told);
  void act(std::size_t agent, const rendezvous::ShowHang& hang);
  void act(std::size_t, const rendezvous::ShowLeftOut&) {}
  void act(std::size_t agent, const rendezvous::SummariseNode& wanted);
  void act(std::size_t agent, const rendezvous::CensusHeard& heard);
  void worker_hangs(std::size_t agent, int round);
  void ask(std::size_t agent);
  void worker_fails(std::size_t agent, int round);
  void workers_return(std::size_t agent, int round);
  void stop_workers(std::size_t agent);
  void kill(Agent& agent);
  void kill_master();
  void break_link(Agent& agent);
  void thaw(std::size_t agent);

  void tell_round(const rendezvous::RoundEvent& event);
  void act(const rendezvous::SendTo& send);
  void act(const rendezvous::SendAll& send);
  void act(const rendezvous::Drop& drop);
  void act(const rendezvous::ClearStore&) { ++clear_count_; }
  void act(const rendezvous::RoundLog&) {}
  void act(const rendezvous::RoundOver&) { is_over_ = true; }
  void send_down(Peer peer, const rendezvous::CoordinatorMessage& message);

  void require(bool is_good, const std::string& what);
  // The worlds that one turn of the coordinator has told.
  void check_worlds();
  void check_restarts(const World& world);
  void check_left_out();
  bool is_left_out(int host) const;
  void check_first_failure(const Failure& root);

  struct Pending {
    Time when;
    long number = 0;
    std::function<void()> deed;
    bool operator<(const Pending& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  const ElasticWeather weather_;
  std::mt19937 random_;
  Time now_{std::chrono::hours(1)};
  long last_number_ = 0;
  std::priority_queue<Pending> pending_;
  std::deque<Agent> agents_;  // in order of birth
  std::map<Peer, Link> links_;
  Peer last_peer_ = 0;
  rendezvous::RoundState round_;
  bool is_master_up_ = false;
  bool was_master_killed_ = false;
  bool is_over_ = false;
  long round_tick_ = 0;
  int clear_count_ = 0;
  int worlds_ = 0;
  std::map<std::size_t, World> told_;       // of this turn
  std::map<std::size_t, World> last_told_;  // of the last world
  std::map<int, std::set<std::size_t>> returned_;
  bool was_failure_ = false;            // what stopped the last world
  std::map<int, Time> first_failures_;  // of each round, wherever it was
  int hangs_shown_ = 0;
  int censuses_told_ = 0;
  std::string broken_;
};

}  // namespace drun::test
