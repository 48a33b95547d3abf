// edge. Injects the faults of --inject that are this node's (agent/faults.h), at their time.
//
//   round begins -> a fault is due -> announce it -> told() by the coordinator, or kToldAtMost has
//   passed -> inject it
//
// So every node knows of a fault before it happens, also when it ends this node, and no other node
// injects it again. When the round ends here before the coordinator has answered, the coordinator
// decides: it passes the fault on, and it is injected, or the round is over there too, and the
// fault is left for the next one. Exit, OutOfMemory: SIGKILL, and the end of the worker is recorded
// as what the fault says. Owner:   Agent. stop() lets go of the io_context.   Thread: the
// io_context's only.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/faults.h"
#include "agent/supervise/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/net/asio.h"

namespace drun::agent {

class FaultInjector {
 public:
  struct Node {
    Workers& workers;
    std::function<void(const InjectedFault&)> announce;
    std::function<void(const InjectedFault&)> on_recorded;  // each once, of any node
    std::string host;
    int first_round = 0;  // that runs the program
  };

  FaultInjector(asio::io_context& io, Log log, FaultPlan plan, Node node);
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  void begin_round(const World& world);
  void end_round();
  // Of this node or of another one.
  void told(const InjectedFault& fault);
  void stop();

  // As the fault says that it ended, if one was injected into it.
  WorkerEnd as_injected(WorkerEnd end) const;
  // Brief: marks it if it is the result of a fault.
  void mark(Failure& failure) const;
  // The outcome's list of faults.
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
