// core. --inject: faults that a job is to survive, or not: which, of what, and when.
//
//   FAULT,...   kill:rank=3@20s  exit:rank=1:code=9@5s  stop:rank=2@5s  oom:rank=0@5s
//               kill:node=1@10s  freeze:node=1@10s  cut:node=2@10s
//               random:seed=7:every=10s
//   time        20s, 500ms, 2m, 1h or seconds: since the first round began; round=1+3s: since that
//               round began, and if it lasts as long
//
// Schedule: every agent has the whole list and injects what is its own node's. Each fault is
// injected
//          once in a job, by the node that has the number, or the rank, in the round in which its
//          time comes. If it has not been injected when that round ends (its time came between two
//          rounds, or just before the end), it is injected when the next one begins. Which node
//          has injected it the others learn from the coordinator: their clocks began a little
//          earlier or later, and the next round may number the nodes differently.
//          An agent that joins in a later round does not know when the first one began: it injects
//          faults of rounds only.
// Random:  each `every` SIGKILL for one rank, which seed and count choose, the same on every node.
// Owner:   values.   Thread: any.   Errors: Usage, naming the part that is wrong.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  std::string text{};                  // as it was given
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
  std::string cut_interface{};  // that CutNode takes down; empty: there is none of this job's own

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

// The faults that are due on this node.
struct DueFault {
  Fault fault{};
  std::optional<int> local_rank{};  // absent: of the node
  bool operator==(const DueFault&) const = default;
};

class FaultSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  FaultSchedule() = default;
  explicit FaultSchedule(FaultPlan plan)
      : plan_(std::move(plan)), states_(plan_.faults.size(), FaultState::Waiting) {}

  // `first_round`: the number of the first one that runs the program.
  void begin_round(const World& world, int first_round, Time now);
  void end_round() { world_.reset(); }
  // Each fault once in a round, until told() of it.
  std::vector<DueFault> take_due(Time now);
  // A node of the job, which may be this one, injects the fault with that text.
  void told(std::string_view text, Time now);
  // When take_due may have something again; absent: not before the next round.
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

// Those of the plan that were injected, in `injected`, and the others, as they are for the report.
// Also marks the failures that were injected.
void settle_faults(Outcome& outcome, std::vector<InjectedFault> injected, const FaultPlan& plan);

// `failure` is what that fault was injected for.
bool is_result_of(const Failure& failure, const InjectedFault& fault);

}  // namespace drun
