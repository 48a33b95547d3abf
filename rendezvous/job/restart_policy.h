// core. Whether a failed round is begun again, and after how long a pause.
//
// Shape:   the coordinator's word counts: the options of the other nodes do not matter.
// Rule:    what counts is how the root cause ended. A program that could not be started has a
//          shell's exit code for it (126, 127).
// Owner:   a value; copy freely.   Thread: any.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/job/outcome.h"

namespace drun {

// How workers may end: "1,42,SIGKILL".
struct ExitKinds {
  std::vector<int> codes{};
  std::vector<int> signals{};
  bool operator==(const ExitKinds&) const = default;
};

struct RestartPolicy {
  std::chrono::milliseconds window{0};  // that restarts are counted in; 0: the whole job
  std::chrono::milliseconds pause{0};   // before the first restart; doubled for each one more
  std::chrono::milliseconds most_pause{std::chrono::minutes(5)};
  std::optional<ExitKinds> only_on{};
  ExitKinds never_on{};
  bool operator==(const RestartPolicy&) const = default;
};

namespace rendezvous {

bool contains(const ExitKinds& kinds, const ExitStatus& status);

// Why `status` is not followed by a restart, as the end of a sentence; nothing if it is. `earlier`:
// the restarts so far, oldest first; `most` of them are allowed.
std::optional<std::string> restart_objection(
    const RestartPolicy& policy, int most,
    std::span<const std::chrono::steady_clock::time_point> earlier, const ExitStatus& status,
    std::chrono::steady_clock::time_point now);

// Of `earlier`, those in the window.
int restarts_counted(const RestartPolicy& policy,
                     std::span<const std::chrono::steady_clock::time_point> earlier,
                     std::chrono::steady_clock::time_point now);

// The pause before restart number `restart`, counted from 1.
std::chrono::milliseconds pause_before(const RestartPolicy& policy, int restart);

}  // namespace rendezvous
}  // namespace drun
