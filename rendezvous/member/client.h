// edge. This node's membership in the job: the connection to the coordinator, the timers and the
// name lookups. The state machine in member.h makes the decisions.
//
// Order:   start; then any number of rounds, each on_world .. report_stopped (or report_success);
//          then on_outcome, exactly once and last. After on_world(round), one of these ends the
//          round for this node:
//            own worker failed     call report_failure at once (on_stop is not called for that
//                                  round), stop the others, report_stopped with the full failures
//            on_stop               stop the workers, then report_stopped (also if none is left)
//            all returned 0        report_success; then on_world, on_stop or on_outcome follows
// Owner:   the agent. The Listener outlives the Client; destruction closes everything silently.
// Calls:   callbacks come from the loop, never from inside a call made here.
// Errors:  all errors lead to the outcome (NotRun, NodeLost) and are logged as they happen.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/log.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/protocol/control_link.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::rendezvous {

// A failure, and when this node saw it. Its age in messages is measured from `seen`, never from
// Failure::time, which may come from an error file or from a clock that was set since.
struct SeenFailure {
  Failure failure;
  std::chrono::steady_clock::time_point seen;
};

class Client {
 public:
  struct Listener {
    // A round is complete: start the workers.
    virtual void on_world(const World& world) = 0;
    // The round has ended (or interrupt() was called): stop the workers, if any are left, and call
    // report_stopped. Called at most once a round; a new world or the outcome follows. With a
    // notice, first give the workers its signal and its time.
    virtual void on_stop(int round, const std::optional<StopNotice>& notice) = 0;
    // The job is over: exactly once, after this node's workers are reported stopped. Also for
    // timeouts, refusals and a lost coordinator (then built here, from what this node knows).
    virtual void on_outcome(const Outcome& outcome) = 0;
    // A query of this node: call answer() with its number within its limit (rules_of in
    // node_queries.h).
    virtual void on_node_query(const NodeQuery& /*query*/) {}
    // Of query(). May be late or belong to no open query.
    virtual void on_query_result(const QueryResult& /*result*/) {}
    // A worker of the job hangs. on_stop follows.
    virtual void on_hang(const HangFound& /*found*/) {}
    // That node, which may be this one, is excluded from the next world.
    virtual void on_left_out(const LeftOut& /*node*/) {}
    // A node of the job, which may be this one, is about to inject that fault.
    virtual void on_fault(const InjectedFault& /*fault*/) {}
    // Every message of the coordinator, before its other callbacks. For observers, which must not
    // call back.
    virtual void on_message(const CoordinatorMessage& /*message*/) {}

   protected:
    ~Listener() = default;
  };
  // For a node that sends its workers' lines to the coordinator. Called before Listener's callbacks
  // for the same event. May call back only `send`.
  struct LineListener {
    using Send = std::function<void(const Lines&)>;
    // Connected: up to `window_bytes` (rendezvous/protocol/line_window.h) may be unacknowledged.
    virtual void on_lines_wanted(std::size_t window_bytes, Send send) = 0;
    virtual void on_lines_taken(std::size_t bytes) = 0;
    // Lines that were sent but not acknowledged may or may not have arrived.
    virtual void on_lines_lost() = 0;

   protected:
    ~LineListener() = default;
  };

  // Connects to a coordinator in this process (Server::join_locally); null: it has ended.
  using JoinLocally = std::function<std::shared_ptr<ControlLink>(ControlLink::Listener& member)>;

  // `spec.endpoint.port` is not 0: the coordinator's own agent fills in Server::port() first. That
  // agent (`spec.is_coordinator`) joins by `join_locally` if given, else over loopback. `host` is
  // this node's name in reports. `lines`, which may be null, outlives the Client too.
  Client(asio::io_context& io, JoinSpec spec, std::string host, Log log, Listener& listener,
         LineListener* lines = nullptr, JoinLocally join_locally = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void start();

  // An own worker failed. Call it at once, with a brief failure: report_stopped sends the full text
  // for the same rank. Only the first failure of a round is sent.
  void report_failure(SeenFailure failure);
  // All own workers of the round returned 0.
  void report_success(int round);
  // All own workers of the round have ended. `failures`: in full (tails, error files), without
  // workers that drun killed. `unusable`: why this node cannot run another round, such as a process
  // that SIGKILL does not end; empty if it can. If set, the node leaves the job, or the job ends.
  // `progress`: of the workers in this round.
  void report_stopped(int round, std::vector<SeenFailure> failures, std::string unusable = {},
                      WorkProgress progress = {});
  // Asks nodes of the job. on_query_result follows, unless the coordinator is lost.
  void query(Query query);
  // The answer to on_node_query().
  void answer(NodeAnswer answer);
  // Call it before report_success, report_stopped and the answer to a query of the status.
  void report_times(const NodeTimes& times);
  // Once per window of the round.
  void report_speed(int round, NodeSpeed speed);
  // Own workers show no activity. `suspects`: brief failures with status Hung.
  void report_suspicion(int round, std::chrono::milliseconds settle, std::vector<Failure> suspects);
  // This node is about to inject the fault. on_fault follows here too, unless the coordinator is
  // lost.
  void report_fault(InjectedFault fault);
  // A termination signal reached this agent: ends the job everywhere. on_stop follows if a round
  // runs here.
  void interrupt(int signal);
  // This agent's own endpoint, one of several, has learned which agent coordinates the job.
  void name_leader(const Endpoint& leader, std::uint64_t term);
  // Why the coordinator is unknown; empty: it is known again.
  void name_trouble(const std::string& reason);
  // No callbacks from here on; the connection is closed. The coordinator sees a lost node unless
  // the outcome was delivered. Idempotent.
  void close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
