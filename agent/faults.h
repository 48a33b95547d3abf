// core. Parses --inject, the faults to be injected into a job, and determines when they are due.
//
//   FAULT,...   kill:rank=3@20s  exit:rank=1:code=9@5s  stop:rank=2@5s  oom:rank=0@5s
//               kill:node=1@10s  freeze:node=1@10s  cut:node=2@10s
//               random:seed=7:every=10s
//   time        20s, 500ms, 2m, 1h or seconds: since the first round began; round=1+3s: since that
//               round began, if it lasts that long
//
// Schedule: every agent has the whole list and injects the faults of its node. Each fault is
//          injected once in a job, by the node that has the target's number or rank in the round in
//          which the fault is due. If it has not been injected when that round ends (it was due
//          between two rounds or just before the end), it is injected at the beginning of the next
//          round. The coordinator tells the other nodes which node has injected it, because their
//          clocks started at slightly different times and the next round may number the nodes
//          differently. An agent that joins in a later round does not know when the first round
//          began, so it injects only faults with a round.
// Random:  SIGKILL for one rank per `every`. Seed and count select the rank, the same on every
//          node.
// Errors:  Usage, with the invalid part.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/world.h"

namespace drun {

enum class FaultKind { Kill, Exit, Stop, OutOfMemory, KillNode, FreezeNode, CutNode };

bool is_of_node(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::Kill;
  int target = 0;  // rank, or node rank
  int code = 0;    // of Exit
  std::optional<int> round{};
  std::chrono::milliseconds after{0};  // the beginning of that round, or of the first one
  std::string text{};                  // as given by the user
  bool operator==(const Fault&) const = default;
};

struct RandomFaults {
  std::uint64_t seed = 0;
  std::chrono::milliseconds every{0};
  std::string text{};
  bool operator==(const RandomFaults&) const = default;
};

struct FaultPlan {
  std::vector<Fault> faults{};
  std::optional<RandomFaults> random{};
  std::string cut_interface{};  // taken down by CutNode; empty: this job has no separate interface

  bool is_empty() const { return faults.empty() && !random; }
  bool operator==(const FaultPlan&) const = default;
};

inline constexpr std::size_t kMostFaults = 64;

Result<FaultPlan> parse_faults(std::string_view text);

// Rejects ranks and nodes beyond those of the job. Absent numbers are unknown.
struct JobSize {
  std::optional<int> nodes{};
  std::optional<int> workers{};
};
Result<void> check_faults(const FaultPlan& plan, JobSize size);

// A fault that is due on this node.
struct DueFault {
  Fault fault{};
  std::optional<int> local_rank{};  // absent: the whole node
  bool operator==(const DueFault&) const = default;
};

class FaultSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  FaultSchedule() = default;
  explicit FaultSchedule(FaultPlan plan)
      : plan_(std::move(plan)), states_(plan_.faults.size(), FaultState::Waiting) {}

  // `first_round`: the number of the first round that runs the program.
  void begin_round(const World& world, int first_round, Time now);
  void end_round() { world_.reset(); }
  // The faults that are due. Returns each fault once per round, until on_announced().
  std::vector<DueFault> take_due(Time now);
  // A node of the job (possibly this one) injects the fault with that text.
  void on_announced(std::string_view text, Time now);
  // When the next fault is due; absent: not in this round.
  std::optional<Time> deadline() const;

 private:
  // Taken: due in this round; the node that has its target injects it.
  enum class FaultState { Waiting, Taken, Past };

  std::optional<Time> time_of(const Fault& fault) const;
  std::optional<Time> time_of_random() const;
  bool has_target(const Fault& fault) const;
  void add_due(const Fault& fault, std::vector<DueFault>& due) const;

  FaultPlan plan_{};
  std::vector<FaultState> states_{};
  std::optional<World> world_{};
  std::optional<Time> job_began_{};  // absent: not known here
  bool has_begun_ = false;
  Time round_began_{};
  std::int64_t next_random_ = 1;
};

// Adds all faults of the plan to the outcome for the report, both injected and not, and marks the
// failures that they caused.
void settle_faults(Outcome& outcome, std::vector<InjectedFault> injected, const FaultPlan& plan);

// Whether that fault caused `failure`.
bool is_result_of(const Failure& failure, const InjectedFault& fault);

}  // namespace drun
