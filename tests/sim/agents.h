// The agents of a simulated job: one Member per agent process, workers that fail, return or
// hang, and connections to the coordinator, which delay, break, fall silent and stall. Messages
// travel as bytes. Derived classes define the coordinator: a fixed one (cluster.h) or an
// elected one (joint_cluster.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/coordinator/round.h"
#include "rendezvous/member/member.h"
#include "tests/sim/simulation.h"

namespace drun::test {

// Chances are percentages.
struct WorkerWeather {
  int failure_chance = 0;  // per node and round
  int bad_hosts = 0;       // hosts 1 to N have workers that fail nine times in ten
  int hang_chance = 0;     // per node and round
  int mute_chance = 0;     // per request for stacks or status: it is never answered
  int slow_chance = 0;     // per failure: its agent notices it up to 2 s later
};

class SimulatedAgents : public virtual Simulation {
 public:
  int hangs_shown() const { return hangs_shown_; }
  int censuses_told() const { return censuses_told_; }
  int stacks_told() const { return stacks_told_; }

 protected:
  using Peer = rendezvous::Peer;
  static constexpr Milliseconds kHangTimeout{1000};
  static constexpr int kLongestStop = 3000, kLongestRound = 12'000, kLongestLook = 4000,
                       kLongestNotice = 2000;

  // An event held back while the agent is frozen. With `dial`, it belongs to that connection and is
  // dropped if the agent has a newer one.
  struct Delayed {
    rendezvous::MemberEvent event;
    std::optional<long> dial;
  };
  // One process. Its host and its index in `agents_` outlive it.
  struct Agent {
    int host = 0;
    rendezvous::MemberState member;
    bool is_alive = true;
    bool was_hurt = false;  // its link was cut or reset, or it was frozen
    bool is_frozen = false;
    bool was_signaled = false;
    std::deque<Delayed> backlog;
    std::optional<Peer> link;
    long tick = 0;
    long dial = 0;  // number of the latest dial
    std::optional<World> running;
    bool is_stopping = false;
    std::vector<rendezvous::AgedFailure> failures;
    std::optional<Outcome> outcome;
    bool is_hung = false;  // its first worker, in `running`
    std::uint64_t last_query = 0;
    std::map<std::uint64_t, rendezvous::QueryKind> open_queries;
  };
  // One direction of a connection. It keeps its order; `free` is when its last message arrives.
  struct Way {
    Time free;
    std::deque<std::function<void()>> arrived;  // not delivered yet because the route is cut
    bool is_stalled = false;
  };
  struct Link {
    std::size_t agent = 0;
    int host = 0;               // the coordinator's
    bool is_open_here = true;   // at the member
    bool is_open_there = true;  // at the coordinator
    bool is_cut = false;        // permanently, without notice to either end
    bool is_greeted = false;    // its first message was received
    Way up;
    Way down;
  };

  SimulatedAgents(const WorkerWeather& weather, int longest_delay_ms)
      : workers_(weather), longest_delay_ms_(longest_delay_ms) {}
  ~SimulatedAgents() = default;

  // --- for derived classes
  // The host that an agent connects to, and whether a coordinator listens on a host.
  virtual int dialled(const Agent&) const { return 0; }
  virtual bool listens(int host) const = 0;
  virtual bool is_way_cut(int /*from*/, int /*to*/) const { return false; }
  virtual void tell_coordinator(int host, const rendezvous::RoundEvent& event) = 0;
  virtual void agent_ended(std::size_t agent) = 0;
  virtual void worker_failed(std::size_t agent, int round) = 0;
  virtual void workers_returned(std::size_t agent, int round) = 0;

  void start_agent(int host, rendezvous::MemberSpec spec);
  // The agent that is alive on `host`, or null.
  Agent* living(int host);
  std::size_t index_of(const Agent& agent) const;
  void kill(Agent& agent);
  void break_link(Agent& agent);
  // Delivers what arrived while the agent was frozen.
  void thaw(std::size_t agent);
  void ask(std::size_t agent);
  void tell_member(std::size_t agent, const rendezvous::MemberEvent& event);

  void send_down(Peer peer, const rendezvous::CoordinatorMessage& message);
  // Closes the coordinator's end of a connection. The member sees a lost connection.
  void drop_link(Peer peer, const std::string& reason);
  void close_there(Peer peer) { links_[peer].is_open_there = false; }

  // Checks that node and rank numbers have no gaps, that each host occurs once, and that all
  // members got the same world. Returns the agent that is node 0.
  std::size_t check_numbers(const std::map<std::size_t, World>& told);

  std::deque<Agent> agents_;  // in order of creation
  std::map<Peer, Link> links_;

 private:
  void carry(Peer peer, bool is_up, std::function<void()> action);
  void flow(Peer peer, bool is_up);
  void close_here(Peer peer);
  static void delay(Agent& agent, const rendezvous::MemberEvent& event);

  void act(std::size_t agent, const rendezvous::Connect&);
  void act(std::size_t agent, const rendezvous::SendToCoordinator& say);
  void act(std::size_t agent, const rendezvous::Disconnect&);
  void act(std::size_t agent, const rendezvous::StartWorkers& start);
  void act(std::size_t agent, const rendezvous::StopWorkers& stop);
  void act(std::size_t agent, const rendezvous::End& end);
  void act(std::size_t agent, const LogLine& line) {
    trace(agents_[agent].host, "member: " + line.text);
  }
  void act(std::size_t agent, const rendezvous::NodeQuery& query);
  void act(std::size_t agent, const rendezvous::QueryResult& result);
  void check_census(const Agent& asked, const rendezvous::QueryResult& result);
  void act(std::size_t agent, const rendezvous::ShowHang& hang);
  void act(std::size_t, const rendezvous::ShowLeftOut&) {}
  void act(std::size_t, const rendezvous::ShowFault&) {}  // simulations inject their own faults
  void act(std::size_t, const rendezvous::AvoidAddress&) {}
  bool has_workers(std::size_t agent, int round) const;
  void worker_fails(std::size_t agent, int round);
  void failure_noticed(std::size_t agent, int round);
  void workers_return(std::size_t agent, int round);
  void worker_hangs(std::size_t agent, int round);
  void stop_workers(std::size_t agent);

  const WorkerWeather workers_;
  const int longest_delay_ms_;
  Peer last_peer_ = 0;
  int hangs_shown_ = 0;
  int censuses_told_ = 0;
  int stacks_told_ = 0;
};

}  // namespace drun::test
