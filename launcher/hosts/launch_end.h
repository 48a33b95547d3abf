// core. How a job over ssh ended, or why it did not begin, in words and as an exit code.
// Thread:  any.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/hosts/host_plan.h"
#include "launcher/hosts/launching.h"

namespace drun::hosts {

struct LaunchEnd {
  int exit_code = 0;
  std::string text{};    // for stderr, with a newline after each line; may be empty
  std::string report{};  // JSON for --report; empty: there is none
  bool operator==(const LaunchEnd&) const = default;
};

// One report, the job's: node 0's, or that of the node that was the cause. 0 only when node 0's
// agent said so. Requires is_over(state).
LaunchEnd launch_end(const Launching& state, const HostPlan& plan, const std::string& invoked_as);

// Nothing was tried, because of that.
LaunchEnd launch_end(const Error& error, const HostPlan& plan, const std::string& invoked_as);

// "node03 is left out: Connection refused".
std::string going_without_text(const GoWithout& without, const HostPlan& plan);

// "no answer yet from node03, node04".
std::string reminder_text(const Launching& state, const HostPlan& plan);

// "1 of 3 hosts are ready, no answer yet from node03, node04; 12s"; absent once none is waited for.
std::optional<std::string> progress_text(const Launching& state, const HostPlan& plan,
                                         std::chrono::milliseconds since);

}  // namespace drun::hosts
