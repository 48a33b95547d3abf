// core. The outcome as JSON (`--report FILE`). Schema and exit codes: docs/reference/report.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/spec.h"
#include "agent/status/phases.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// One JSON object, indented, ends with a newline. `exit_code` is what drun is about to return,
// `placements` are those of this node's workers; empty: nothing was placed. `phase_times` are this
// node's; absent: no agent ran here.
// Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string report_json(const Outcome& outcome, int exit_code,
                        const std::vector<WorkerPlacement>& placements = {},
                        const std::optional<agent::PhaseTimes>& phase_times = {});

}  // namespace drun
