// core. The outcome as JSON, for programs: `--report FILE`. Schema and exit codes: REPORT.md.
// Thread: any.
#pragma once

#include <string>

#include "rendezvous/outcome.h"

namespace drun {

// One JSON object, indented, ends with a newline. `exit_code` is what drun is about to return.
// Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string report_json(const Outcome& outcome, int exit_code);

}  // namespace drun
