// edge. This node's membership of the job: the connection to the coordinator, its timers and its
// name look-ups; what to do about them is decided by member/member.h.
//
// Order:   start; then any number of rounds, each on_world .. report_stopped (or report_success);
//          then on_outcome, exactly once and last. After on_world(round), one of these ends the
//          round for this node:
//            own worker failed     report_failure at once (on_stop is not called for that round),
//                                  stop the others, report_stopped with the full failures
//            on_stop               stop the workers, then report_stopped (also when none is left)
//            all returned 0        report_success; then on_world, on_stop or on_outcome follow
// Owner:   the agent. The Listener outlives the Client; destruction closes everything silently.
// Thread:  the io_context's only. Callbacks come from the loop, never from inside a call made here.
//          Host names are looked up on a thread of Asio's own (getaddrinfo blocks); numeric
//          addresses and "localhost" are not looked up, and start no thread.
// Errors:  all of them arrive as the outcome (NotRun, NodeLost); logged as they happen. No throws.
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
    // The round is over elsewhere (or interrupt() was called): stop the workers, if any are left,
    // and report_stopped. At most once a round; a new world or the outcome follows. With a notice
    // the workers get its signal and its time before they are stopped.
    virtual void on_stop(int round, const std::optional<StopNotice>& notice) = 0;
    // The job is over: exactly once, after this node's workers are reported stopped. Also for
    // timeouts, refusals and a lost coordinator (then built here, from what this node knows).
    virtual void on_outcome(const Outcome& outcome) = 0;
    // What do this node's workers do? give_evidence with that number, within kLookLimit.
    virtual void on_look(std::uint64_t /*look*/) {}
    // The answer to ask(). Late answers, and answers without a question, are possible.
    virtual void on_told(std::uint64_t /*question*/, const Evidence& /*evidence*/) {}
    // How is this node? give_summary with that number.
    virtual void on_census(std::uint64_t /*census*/) {}
    // The answer to ask_census(). Late answers, and answers without a question, are possible.
    virtual void on_census_told(std::uint64_t /*question*/, const Census& /*census*/) {}
    // What is in that log file of this node? give_log_part with that number, within kLogLimit.
    virtual void on_log_lookup(std::uint64_t /*lookup*/, const LogQuery& /*query*/) {}
    // The answer to ask_log(). Late answers, and answers without a question, are possible.
    virtual void on_log_told(std::uint64_t /*question*/, const LogPart& /*part*/) {}
    // Why on_stop follows: a worker hangs somewhere.
    virtual void on_hang(const HangFound& /*found*/) {}
    // The next world does without that node, which may be this one.
    virtual void on_left_out(const LeftOut& /*node*/) {}
    // A node of the job, which may be this one, is about to inject that fault.
    virtual void on_fault(const InjectedFault& /*fault*/) {}
    // Every message of the coordinator, before anything that follows from it; for observers, which
    // must not call back.
    virtual void on_message(const CoordinatorMessage& /*message*/) {}

   protected:
    ~Listener() = default;
  };
  // Of a node whose workers' lines go to the coordinator. Called before anything of Listener that
  // follows from the same; may call back `send` alone.
  struct LineListener {
    using Send = std::function<void(const Lines&)>;
    // Connected: so many bytes (rendezvous/protocol/line_window.h) may be under way.
    virtual void on_lines_wanted(std::size_t window_bytes, Send send) = 0;
    virtual void on_lines_taken(std::size_t bytes) = 0;
    // Lines that were sent but not acknowledged may or may not have arrived.
    virtual void on_lines_lost() = 0;

   protected:
    ~LineListener() = default;
  };

  // `spec.endpoint.port` is not 0: the coordinator's own agent fills in Server::port() first. That
  // agent (`spec.is_coordinator`) joins over loopback like any other. `host` is this node's name in
  // reports. `lines`, which may be null, outlives the Client too.
  Client(asio::io_context& io, JoinSpec spec, std::string host, Log log, Listener& listener,
         LineListener* lines = nullptr);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void start();

  // An own worker failed. Brief and at once: the full text may follow in report_stopped, matched by
  // rank. Only the first of a round is sent.
  void report_failure(SeenFailure failure);
  // All own workers of the round returned 0.
  void report_success(int round);
  // All own workers of the round are gone; `failures` in full (tails, error files), those killed by
  // drun left out. `unusable`: why this node cannot run another round, such as a process that
  // SIGKILL does not end; empty if it can. The node leaves the job, or the job ends.
  // `progress`: what they have shown.
  void report_stopped(int round, std::vector<SeenFailure> failures, std::string unusable = {},
                      WorkProgress progress = {});
  // What do all workers of the job do? on_told follows, unless the coordinator is lost.
  void ask(std::uint64_t question);
  void give_evidence(std::uint64_t look, Evidence evidence);
  // How are all nodes of the job? on_census_told follows, unless the coordinator is lost.
  void ask_census(std::uint64_t question);
  void give_summary(std::uint64_t census, const NodeSummary& summary);
  // What is in a log file of that rank? on_log_told follows, unless the coordinator is lost.
  void ask_log(std::uint64_t question, const LogQuery& query);
  void give_log_part(std::uint64_t lookup, LogPart part);
  // Before report_success, report_stopped and give_summary.
  void report_times(const NodeTimes& times);
  // Own workers show no sign of life: brief failures with status Hung.
  void report_suspicion(int round, std::chrono::milliseconds settle, std::vector<Failure> suspects);
  // This node is about to inject it: on_fault follows here too, unless the coordinator is lost.
  void report_fault(InjectedFault fault);
  // A termination signal reached this agent: ends the job everywhere. on_stop follows if a round
  // runs here.
  void interrupt(int signal);
  // This agent's own endpoint, of several, has heard who coordinates the job.
  void name_leader(const Endpoint& leader, std::uint64_t term);
  // Why it cannot hear of any; empty: it can.
  void name_trouble(const std::string& reason);
  // No callbacks from here on; the connection is closed. The coordinator sees a lost node unless
  // the outcome was delivered. Idempotent.
  void close();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
