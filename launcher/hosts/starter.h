// edge. The starter: ssh sessions, consoles, signals and a timer around the machine that decides
// (launching.h).
// Thread:  the one that calls; it has an io_context of its own.
#pragma once

#include "launcher/hosts/host_plan.h"
#include "launcher/hosts/launch_end.h"
#include "rendezvous/log.h"

namespace drun::hosts {

struct StarterStyle {
  std::string invoked_as{};
  int columns = 80;
  bool has_colour = false;
  long utc_offset_s = 0;
};

// Runs the job of `plan` from the first login to the last session's end; what the hosts print has
// then been written to fd 1 and 2. `environment`: of each ssh. Never throws.
LaunchEnd run_starter(const HostPlan& plan, const std::vector<EnvironmentEntry>& environment,
                      const StarterStyle& style, const Log& log);

}  // namespace drun::hosts
