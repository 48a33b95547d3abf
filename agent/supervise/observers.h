// edge. What observers of the job see of this node: its events with their file, and the times of
// its phases. Also serves observers: answers queries about the job and its workers over the local
// sockets and HTTP. Keeps the io_context running until close().
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/http/server.h"
#include "agent/spec.h"
#include "agent/status/events.h"
#include "agent/status/node_status.h"
#include "agent/status/phases.h"
#include "agent/status/status_socket.h"
#include "agent/workers/workers.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/slow_rank.h"
#include "rendezvous/job/world.h"
#include "rendezvous/member/client.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/protocol/control_message.h"

namespace drun::agent {

class Observers {
 public:
  using Clock = std::chrono::steady_clock;
  // Sources of the answers: this agent, and the coordinator, whose results are passed to answer().
  struct Sources {
    std::function<NodeStatus()> status;
    ForwardedQueries::Send send_query;
  };

  // Errors: those of EventLog and web::Server, if the user enabled them.
  Result<void> open(asio::io_context& io, const AgentSpec& spec, const Log& log, Sources sources);
  void close();

  void answer(const rendezvous::QueryResult& result) {
    if (queries_) queries_->answer(result);
  }
  EventLog& events() { return events_; }
  void write(const Event& event) { events_.write(event); }

  // What happens on this node. Each writes its event, and PhaseBegan if a phase begins.
  void on_message(const rendezvous::CoordinatorMessage& message, bool is_between_rounds);
  void begin_round(const World& world);
  void begin_spawn() {
    enter(Phase::Spawn);  // unless it was entered with the round, and no import followed
    phases_.begin_spawn(Clock::now());
  }
  void note_started(const std::vector<int>& pids);
  void note_first_print(int local_rank);
  void note_failed(const Failure& failure);
  void note_ended(const WorkerEnd& end);
  void note_stop();
  void note_round_end(bool has_succeeded, const std::vector<rendezvous::SeenFailure>& failures);
  void enter(Phase phase) { note_phase(phases_.enter(phase, Clock::now())); }

  NodeTimes times() const { return phases_.times(Clock::now()); }
  PhaseTimes final_times() const { return phases_.final_totals(Clock::now()); }
  // Since the agent began, and since the latest round did.
  std::chrono::milliseconds up() const { return since(began_); }
  std::chrono::milliseconds round_up() const { return since(round_began_); }
  Clock::time_point round_began() const { return round_began_; }
  // Of a worker of this node, in any round.
  const std::optional<Failure>& last_failure() const { return last_failure_; }

 private:
  static std::chrono::milliseconds since(Clock::time_point begin) {
    return std::chrono::floor<std::chrono::milliseconds>(Clock::now() - begin);
  }
  void note_phase(bool has_begun) {
    if (has_begun) write(PhaseBegan{phases_.current()});
  }
  void note_slow(const SlowRank& slow);
  void open_sockets(asio::io_context& io, const Log& log);
  Result<void> open_web(asio::io_context& io, const Endpoint& place, const Log& log);

  Sources sources_;
  EventLog events_;
  std::optional<StatusSocket> status_socket_;
  std::optional<ForwardedQueries> queries_;
  std::unique_ptr<web::Server> web_;
  std::optional<Log> log_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point round_began_;
  PhaseClock phases_{began_};
  std::optional<World> world_;
  std::optional<std::uint64_t> last_term_;  // of the coordinator that was joined last
  std::string stop_cause_;                  // of the latest round
  std::optional<Failure> last_failure_;
  std::vector<SlowRank> slow_;  // found by the coordinator
};

}  // namespace drun::agent
