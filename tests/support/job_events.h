// Event lines of a simulated job, for tests of timelines and reports.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/status/events.h"
#include "tests/support/messages.h"

namespace drun::test {

// One agent's lines, with its clocks.
class AgentEvents {
 public:
  AgentEvents(std::string host, int pid, double begin_s = 0)
      : place_{.run_id = "night", .host = std::move(host), .pid = pid}, begin_s_(begin_s) {}

  // `at_s`: the time in the job, in seconds.
  void add(double at_s, const agent::Event& event) {
    text_ +=
        event_line(event, place_, kSomeTime + micro(at_s + clock_error_s_), micro(at_s - begin_s_));
  }
  void set_clock_error(double seconds) { clock_error_s_ = seconds; }
  const std::string& text() const { return text_; }

 private:
  static std::chrono::microseconds micro(double seconds) {
    return std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
  }
  agent::EventPlace place_;
  double begin_s_;
  double clock_error_s_ = 0;
  std::string text_;
};

struct ModelJob {
  int nodes = 2;
  int ranks_per_node = 2;
  int rounds = 1;             // all but the last one fail
  int failing_rank = 1;       // in each failing round; in the last one only with `fails`
  bool fails = true;          // the last round
  bool is_cut_short = false;  // every agent is killed during the last round
  std::string last_line = "ValueError: bad batch";
};

// A round takes 10 s: waiting 1, spawn 0.5, start 2, running, stopping 0.5, restarting 1.
inline std::string events_of(const ModelJob& model) {
  using namespace agent;
  std::string text;
  const int world_size = model.nodes * model.ranks_per_node;
  const int failing_node = model.failing_rank / model.ranks_per_node;
  const auto failure_at = [&](int round) {
    Failure failure;
    failure.rank = model.failing_rank;
    failure.local_rank = model.failing_rank % model.ranks_per_node;
    failure.node_rank = failing_node;
    failure.round = round;
    failure.host = "gpu" + std::to_string(failing_node);
    failure.pid = 1000 + model.failing_rank;
    failure.status = Exited{.code = 3};
    failure.stderr_tail = {"Traceback (most recent call last):", model.last_line};
    return failure;
  };
  for (int node = 0; node < model.nodes; ++node) {
    AgentEvents events("gpu" + std::to_string(node), 10 + node);
    events.add(0, AgentStarted{.local_world_size = model.ranks_per_node,
                               .command = {"train.py", "--lr=1"},
                               .drun_version = "1.2",
                               .kernel = "Linux 6.1"});
    events.add(0, PhaseBegan{Phase::Waiting});
    for (int round = 0; round < model.rounds; ++round) {
      const double begin = 1 + 10.0 * round;
      const bool is_last = round + 1 == model.rounds;
      events.add(begin, RoundBegan{World{.run_id = "night",
                                         .round = round,
                                         .restarts = round,
                                         .node_rank = node,
                                         .node_count = model.nodes,
                                         .base_rank = node * model.ranks_per_node,
                                         .local_world_size = model.ranks_per_node,
                                         .world_size = world_size,
                                         .master_addr = "gpu0"}});
      events.add(begin, PhaseBegan{Phase::Spawn});
      const auto each_rank = [&](auto action) {
        for (int local = 0; local < model.ranks_per_node; ++local)
          action(node * model.ranks_per_node + local, local);
      };
      each_rank([&](int rank, int local) {
        events.add(begin + 0.5, WorkerStarted{round, rank, local, 1000 + rank});
      });
      events.add(begin + 0.5, PhaseBegan{Phase::Start});
      events.add(begin + 2.5, PhaseBegan{Phase::Running});
      each_rank([&](int rank, int local) {
        events.add(begin + 2.5, WorkerAlive{round, rank, local});
      });
      if (is_last && model.is_cut_short) break;
      const bool fails = !is_last || model.fails;
      const double stop = begin + 8.5;
      const bool is_here = fails && node == failing_node;
      if (is_here) events.add(stop, WorkerFailed{failure_at(round)});
      if (fails) {
        events.add(stop, PhaseBegan{Phase::Stopping});
        events.add(stop, RoundStopping{round, "rank " + std::to_string(model.failing_rank) +
                                                  " failed: exit code 3"});
      }
      each_rank([&](int rank, int local) {
        const bool is_cause = fails && rank == model.failing_rank;
        const ExitStatus status = is_cause ? ExitStatus(Exited{.code = 3})
                                  : fails  ? ExitStatus(Killed{.signal = 15})
                                           : ExitStatus(Exited{.code = 0});
        events.add(stop + 0.1,
                   WorkerEnded{.round = round,
                               .rank = rank,
                               .local_rank = local,
                               .pid = 1000 + rank,
                               .status = status,
                               .stopped_by_drun = fails && !is_cause,
                               .usage = WorkerUsage{.peak_memory_bytes = 3 << 20,
                                                    .processor_time = std::chrono::seconds(5)}});
      });
      RoundEnded ended{.round = round, .has_succeeded = !fails};
      if (is_here) ended.failures.push_back(failure_at(round));
      events.add(stop + 0.5, ended);
      if (!is_last) events.add(stop + 0.5, PhaseBegan{Phase::Restarting});
      if (!is_last) continue;
      Outcome outcome{.ending = Succeeded{}, .run_id = "night", .restarts = round};
      if (fails) outcome.ending = WorkersFailed{.failures = {failure_at(round)}};
      events.add(begin + 9, JobEnded{outcome});
    }
    text += events.text();
  }
  return text;
}

}  // namespace drun::test
