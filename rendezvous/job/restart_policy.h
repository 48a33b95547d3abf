// core. Decides whether the job restarts after a failed round, and after which pause.
//
// The coordinator decides; the restart options of the other nodes have no effect. The decision
// depends on how the root cause ended and, if the options name classes of faults, on the diagnosis
// of the round. A program that could not be started counts with the exit code of a shell (126,
// 127).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/job/outcome.h"

namespace drun {

// The part of a failed round's diagnosis that decides about restarts.
struct RoundFault {
  std::string name{};         // its class: "desync"; empty: not known
  bool is_pointless = false;  // a restart does not help
  bool operator==(const RoundFault&) const = default;
};

// The diagnosis is part of the agent, which the coordinator does not know (agent/diagnosis).
using DiagnoseRound = RoundFault (*)(const Outcome& outcome, std::chrono::milliseconds round_ran);

// Names every failure after which a restart does not help, in ExitKinds::faults.
inline constexpr const char* kPointless = "pointless";

// A set of exit codes, signals and classes of faults: "1,42,SIGKILL,desync".
struct ExitKinds {
  std::vector<int> codes{};
  std::vector<int> signals{};
  std::vector<std::string> faults{};
  bool operator==(const ExitKinds&) const = default;
};

struct RestartPolicy {
  std::chrono::milliseconds window{0};  // only restarts in this window count; 0: in the whole job
  bool per_progress = false;            // progress restores the whole budget of restarts
  std::chrono::milliseconds pause{0};   // before the first restart; doubled for each further one
  std::chrono::milliseconds most_pause{std::chrono::minutes(5)};
  std::optional<ExitKinds> only_on{};
  ExitKinds never_on{};
  // A failure this soon after the start of its round is a start-up failure, unless a signal from
  // outside ended the worker, or the round has made progress.
  std::chrono::milliseconds startup_time{std::chrono::minutes(1)};
  std::chrono::milliseconds startup_pause{0};  // after the first start-up failure in a row; doubled
  // This many consecutive start-up failures with one cause end the job; 0: no limit.
  int max_same_failures = 0;
  DiagnoseRound diagnose = nullptr;  // set by the agent; null: faults have no class
  bool operator==(const RestartPolicy&) const = default;
};

// Names the file in which a worker shows its progress.
inline constexpr const char* kProgressVariable = "DRUN_PROGRESS_FILE";

// The progress of a node's workers in a round (docs/guide/elastic.md).
struct WorkProgress {
  // The highest number in their progress files. It is progress only if the job was never there
  // before: a job that starts again from a checkpoint repeats some steps.
  std::optional<std::uint64_t> step{};
  bool has_more = false;  // a line without a number, or a newer checkpoint
  bool operator==(const WorkProgress&) const = default;
};

namespace rendezvous {

bool contains(const ExitKinds& kinds, const ExitStatus& status, const RoundFault& fault = {});

// Whether the policy depends on the class of a fault.
bool needs_fault(const RestartPolicy& policy);

// Why `status` does not lead to a restart, as the end of a sentence; nullopt if it does. `earlier`:
// the restarts that count, oldest first; `most` of them are allowed. `fault`: of the round, if
// needs_fault().
std::optional<std::string> restart_objection(
    const RestartPolicy& policy, int most,
    std::span<const std::chrono::steady_clock::time_point> earlier, const ExitStatus& status,
    std::chrono::steady_clock::time_point now, const RoundFault& fault = {});

// The number of restarts of `earlier` that are in the window.
int restarts_counted(const RestartPolicy& policy,
                     std::span<const std::chrono::steady_clock::time_point> earlier,
                     std::chrono::steady_clock::time_point now);

// What makes two failures the same: how the worker ended and the last line of its error, without
// numbers; and the rank, if there is no such line.
struct FailureCause {
  int rank = 0;
  ExitStatus status{};
  std::string error;
  bool operator==(const FailureCause&) const = default;
};

FailureCause cause_of(const Failure& failure);
bool is_same(const FailureCause& one, const FailureCause& other);

// Start-up failures in a row.
struct FailureStreak {
  int startup_failures = 0;
  int same_failures = 0;  // the last ones that have the same cause
  std::optional<FailureCause> cause{};
  bool operator==(const FailureStreak&) const = default;
};

// A failed round: its root cause, the time from its start to the failure, and whether the job made
// progress in it.
struct FailedRound {
  const Failure& failure;
  std::chrono::milliseconds ran_for{0};
  bool made_progress = false;
};

// The streak after another failed round. A failure after startup_time or after progress resets it.
// A failure from outside (a signal that neither the program nor the kernel's out-of-memory killer
// sent) does not change it.
FailureStreak next_streak(const FailureStreak& streak, const RestartPolicy& policy,
                          const FailedRound& round);

// Why a restart after this streak cannot help, as the end of a sentence; nullopt if it may.
std::optional<std::string> streak_objection(const RestartPolicy& policy,
                                            const FailureStreak& streak);

// The pause after the last failure of a streak: startup_pause, doubled for each failure but the
// first, at most most_pause; and up to a quarter more, which `seed` decides, so that jobs that
// failed together do not start together.
std::chrono::milliseconds pause_after(const RestartPolicy& policy, const FailureStreak& streak,
                                      std::size_t seed);

// The pause before restart number `restart`, counted from 1.
std::chrono::milliseconds pause_before(const RestartPolicy& policy, int restart);

}  // namespace rendezvous
}  // namespace drun
