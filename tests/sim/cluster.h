// Simulates a whole cluster in one process: one coordinator's Round, one Member per node, and a
// network that delays messages, reorders them between links, and loses connections and nodes.
// Messages travel as bytes. Invariants are checked during the run, and `check_end` checks the final
// state. `broken` holds the first violation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/coordinator/round.h"
#include "rendezvous/member/member.h"
#include "tests/sim/simulation.h"

namespace drun::test {

using rendezvous::Peer;

// Faults that may occur in one run. Chances are percentages.
struct Weather {
  int node_count = 3;
  int max_restarts = 0;
  int failure_chance = 0;      // per node and round
  int interrupt_chance = 0;    // once, on a random node
  int kill_chance = 0;         // one node other than the coordinator's
  int kill_master_chance = 0;  // the coordinator's node
  int cut_chance = 0;          // one link silently loses everything from then on
  int drop_chance = 0;         // one link is reset
  int absent_chance = 0;       // one node never starts
  int hang_chance = 0;         // per node and round
  int mute_chance = 0;         // per request for stacks or status: it is never answered
  int question_chance = 0;     // per node: asks once for all stacks and for the job's status
};

class Cluster : public Simulation {
 public:
  Cluster(const Weather& weather, std::uint32_t seed);

  void run();
  void check_end();

  // Outcomes of the nodes that were not killed.
  std::vector<Outcome> outcomes() const;
  int restarts() const { return round_.round; }
  int hangs_shown() const { return hangs_shown_; }
  int questions_answered() const { return questions_answered_; }
  int censuses_told() const { return censuses_told_; }

 private:
  static constexpr Milliseconds kJoinTimeout{60'000};
  static constexpr Milliseconds kHeartbeatTimeout{4'000};
  static constexpr Milliseconds kHangTimeout{1000};
  static constexpr int kLongestStop = 3000;
  static constexpr int kLongestRound = 5000;
  static constexpr int kLongestDelay = 40;
  static constexpr int kLongestLook = 4000;

  struct Node {
    rendezvous::MemberState member;
    bool is_alive = false;
    bool was_cut = false;  // its link was cut or reset
    bool was_signaled = false;
    std::optional<Peer> link;
    long tick = 0;                 // number of the latest requested tick
    std::optional<World> running;  // the world whose workers have not all exited
    bool is_stopping = false;
    std::vector<rendezvous::AgedFailure> failures;  // in `running`
    int world_count = 0;
    std::optional<Outcome> outcome;
    bool is_hung = false;  // its first worker, in `running`
    std::uint64_t last_query = 0;
    std::uint64_t status_query = 0;
    std::set<std::uint64_t> open_queries;
  };
  // One connection. Each direction keeps its order; `*_free` is when its last message arrives.
  struct Link {
    int node = 0;
    bool is_open_here = true;   // at the member
    bool is_open_there = true;  // at the coordinator
    bool is_cut = false;
    bool is_greeted = false;  // its first message was received
    Time up_free;
    Time down_free;
  };

  void plan_accidents(const Weather& weather);
  Node& node_at(int node) { return nodes_[static_cast<std::size_t>(node)]; }

  // The network. A message is lost if its link is cut, or closed at the receiver.
  void carry_up(Peer peer, std::function<void()> action);
  void carry_down(Peer peer, std::function<void()> action);
  void close_here(Peer peer);
  void close_there(Peer peer);

  // The nodes.
  void tell_member(int node, const rendezvous::MemberEvent& event);
  void act(int node, const rendezvous::Connect&);
  void act(int node, const rendezvous::SendToCoordinator& say);
  void act(int node, const rendezvous::Disconnect&);
  void act(int node, const rendezvous::StartWorkers& start);
  void act(int node, const rendezvous::StopWorkers& stop);
  void act(int node, const rendezvous::End& end);
  void act(int, const rendezvous::MemberLog&) {}
  void act(int node, const rendezvous::NodeQuery& query);
  void act(int node, const rendezvous::QueryResult& result);
  void act(int node, const rendezvous::ShowHang& hang);
  void act(int, const rendezvous::AvoidAddress&) {}
  void act(int, const rendezvous::ShowLeftOut&) {}  // see elastic_cluster.h
  void act(int, const rendezvous::ShowFault&) {}    // simulations inject their own faults
  void worker_hangs(int node, int round);
  void ask(int node);
  void worker_fails(int node, int round);
  void workers_return(int node, int round);
  void stop_workers(int node);
  void kill(int node);

  // The coordinator.
  void tell_round(const rendezvous::RoundEvent& event);
  void act(const rendezvous::SendTo& send);
  void act(const rendezvous::SendAll& send);
  void act(const rendezvous::SendResult& send);
  void act(const rendezvous::Drop& drop);
  void act(const rendezvous::ClearStore&) { ++clear_count_; }
  void act(const rendezvous::RoundLog&) {}
  void act(const rendezvous::RoundOver&) { is_over_ = true; }
  void act(const rendezvous::StepDown&) { require(false, "no other node can coordinate"); }
  void send_down(Peer peer, const rendezvous::CoordinatorMessage& message);

  void check_world(int node, const World& world);
  void check_census(const rendezvous::QueryResult& result);

  std::vector<Node> nodes_;
  std::map<Peer, Link> links_;
  Peer last_peer_ = 0;
  rendezvous::RoundState round_;
  bool is_master_up_ = false;
  bool was_master_killed_ = false;
  bool is_over_ = false;
  long round_tick_ = 0;
  int clear_count_ = 0;
  int failure_chance_ = 0;
  int hang_chance_ = 0;
  int mute_chance_ = 0;
  int hangs_shown_ = 0;
  int questions_answered_ = 0;
  int censuses_told_ = 0;
  std::map<int, std::set<int>> returned_;  // nodes whose workers all returned 0, by round
};

}  // namespace drun::test
