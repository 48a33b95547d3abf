// core. The outcome as JSON (`--report FILE`). See docs/reference/report.md for the schema and the
// exit codes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "agent/status/phases.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// One indented JSON object; ends with a newline. `exit_code` is the exit code that drun will
// return. `placements` are those of this node's workers; empty if none was placed. `phase_times`
// are this node's; absent if no agent ran here. Bytes that are not UTF-8 become U+FFFD. Never
// throws.
std::string report_json(const Outcome& outcome, int exit_code,
                        const std::vector<WorkerPlacement>& placements = {},
                        const std::optional<agent::PhaseTimes>& phase_times = {});

}  // namespace drun
