// edge. Injects the faults of --inject (agent/faults.h) that apply to this node, at their time.
//
//   round begins -> a fault is due -> announce it -> on_announced() by the coordinator, or
//   kAnnounceLimit has
//   passed -> inject it
//
// Every node therefore knows about a fault before it happens, even if the fault ends this node, and
// no other node injects it again. If the round ends here before the coordinator has answered, the
// coordinator decides: either it confirms the fault, which is then injected, or the round is over
// there too, and the fault stays pending for the next round.
//
// Exit and OutOfMemory are implemented with SIGKILL; the worker's end is recorded as the fault
// specifies.
//
// Owner:   Agent. After stop() it no longer keeps the io_context running.
// Thread:  the io_context's only.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/faults.h"
#include "agent/workers/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class FaultInjector {
 public:
  struct Node {
    Workers& workers;
    std::function<void(const InjectedFault&)> announce;
    std::function<void(const InjectedFault&)> on_recorded;  // once per fault, of any node
    std::string host;
    int first_round = 0;  // the first round that runs the program
  };

  FaultInjector(asio::io_context& io, Log log, FaultPlan plan, Node node);
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  void begin_round(const World& world);
  void end_round();
  // The coordinator has announced a fault of this node or of another one.
  void on_announced(const InjectedFault& fault);
  void stop();

  // If a fault was injected into this worker: its end as the fault specifies.
  WorkerEnd as_injected(WorkerEnd end) const;
  // Marks a brief failure if a fault caused it.
  void mark(Failure& failure) const;
  // Fills in the outcome's list of faults.
  void settle(Outcome& outcome) const;

 private:
  struct Pending {
    DueFault due;
    InjectedFault record;
    FaultSchedule::Time act_by{};
  };

  void arm();
  void look();
  void record(const InjectedFault& fault);
  void inject(const Pending& pending);
  void kill_node() const;
  void freeze_node() const;
  void cut_node() const;

  Log log_;
  FaultPlan plan_;
  Node node_;
  FaultSchedule schedule_;
  asio::steady_timer timer_;
  std::optional<World> world_;
  std::vector<Pending> pending_;
  std::vector<InjectedFault> injected_;  // of all nodes, in the order of the coordinator
  std::map<int, Fault> ends_;            // of this round, by local rank
  bool is_running_ = false;              // the round, here
  bool is_stopped_ = false;
};

}  // namespace drun::agent
