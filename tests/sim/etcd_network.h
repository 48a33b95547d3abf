// Simulates the agents of one job and an etcd in one process, with clocks that run at different
// rates. Calls are slow, get lost in either direction, or are carried out long after the caller has
// given up. Etcd is unavailable for a while; agents crash, restart and freeze. After each event it
// checks that at most one agent leads, that no round number is used twice and that nothing stored
// is lost. `broken` holds the first violation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/leader/etcd_election.h"
#include "tests/sim/simulation.h"
#include "tests/support/model_etcd.h"

namespace drun::test {

// Counts are of faults at random moments in the first 60 s.
struct EtcdWeather {
  int agents = 3;
  int crashes = 0;  // three in four restart within 8 s
  int leader_kills = 0;
  int resigns = 0;  // the leader resigns and crashes soon after
  int freezes = 0;  // an agent is frozen for a while
  int cuts = 0;     // an agent cannot reach etcd for a while
  int outages = 0;  // etcd is unavailable for a while
  int drift = 0;    // maximum clock error in percent, fast or slow
  int lost = 0;     // percentage of calls lost, in each direction
  int longest_delay_ms = 40;
  int watch_fails = 0;  // percentage of watches that etcd ends at once
};

// The number of calls that etcd received from all agents.
struct EtcdLoad {
  long transactions = 0;
  long grants = 0;
  long revokes = 0;
  long claims = 0;
  long watches = 0;
};

class EtcdNetwork : public Simulation {
 public:
  static constexpr std::chrono::seconds kLease{5};

  EtcdNetwork(const EtcdWeather& weather, std::uint32_t seed);

  void start(int agent);
  void crash(int agent);
  void freeze(int agent, bool is_frozen);
  void cut(int agent, bool is_cut) { agents_[static_cast<std::size_t>(agent)].is_cut = is_cut; }
  void take_etcd_away(bool is_away);
  void resign(int agent) { tell(agent, rendezvous::etcd::Resign{}); }
  void finish(int agent) { tell(agent, rendezvous::etcd::JobOver{}); }
  void run_for(Milliseconds time);
  // Runs all planned faults, then a period without faults.
  void run_all();

  std::optional<int> leader() const;  // now
  const rendezvous::etcd::CampaignState& state(int agent) const {
    return agents_[static_cast<std::size_t>(agent)].state;
  }
  const ModelEtcd& etcd() const { return etcd_; }
  EtcdLoad take_load() { return std::exchange(load_, {}); }
  Time led_since() const { return led_since_; }
  int leads() const { return leads_; }
  int rounds() const { return static_cast<int>(round_of_.size()); }

 private:
  static constexpr int kAccidentsUntil = 60'000;
  static constexpr int kEtcd = -1;  // the host of its clock

  struct Agent {
    bool is_up = false;
    bool is_frozen = false;
    bool is_cut = false;
    long life = 0;
    long tick = 0;
    rendezvous::etcd::CampaignState state;
    std::vector<rendezvous::etcd::CampaignEvent> backlog;
    long watch = 0;  // a counter; reports of earlier watches are dropped
    std::uint64_t watch_number = 0;
    Time watch_report;  // when the last report arrives; reports stay in order
    bool is_watching = false;
    int rounds = 0;  // while it leads
    bool is_wanting = false;
  };

  Agent& agent(int index) { return agents_[static_cast<std::size_t>(index)]; }
  bool happens(int chance) { return percent() < chance; }
  void plan_accidents();
  void expire_some();
  void tell(int index, const rendezvous::etcd::CampaignEvent& event);
  void act(int index, const rendezvous::etcd::AskEtcd& ask);
  void act(int index, const rendezvous::Leading& leading);
  void act(int index, const rendezvous::RoundKnown& kept);
  void act(int index, const rendezvous::etcd::WatchLeader& watch);
  void act(int index, const rendezvous::etcd::StopWatching&) {
    ++agent(index).watch;
    agent(index).is_watching = false;
  }
  template <typename Other>
  void act(int, const Other&) {}
  void report(int index, const rendezvous::etcd::WatchMessage& message);
  void end_watch(int index, Milliseconds within);
  void show_change();
  void carry_out(int index, long life, const rendezvous::etcd::AskEtcd& ask);
  void want_rounds(int index, std::uint64_t term);
  void require_of(bool is_good, const std::string& what, int agent);
  void check_leaders();

  const EtcdWeather weather_;
  std::vector<Agent> agents_;
  ModelEtcd etcd_;
  std::optional<rendezvous::etcd::Found> shown_leader_;  // last reported to watches
  rendezvous::etcd::Revision shown_at_ = 0;
  EtcdLoad load_;
  bool is_away_ = false;
  std::map<int, std::uint64_t> round_of_;  // round number to term
  std::uint64_t last_term_ = 0;
  Time led_since_;
  int leads_ = 0;
};

}  // namespace drun::test
