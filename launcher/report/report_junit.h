// core. The outcome as JUnit XML, for CI systems: `--report=job.xml`.
//
//   one test suite, the job: a test case "job", with the root cause as its failure, and one for
//   each rank. A rank fails if it failed; in a job that did not succeed the others are skipped, as
//   they were stopped. Faults of --inject are properties of the suite.
//
// Shape:   UTF-8. Bytes that are not, and characters that XML cannot have, become U+FFFD.
// Limits:  kMostRankCases ranks; a property tells how many are not listed.
// Thread:  any.   Errors: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/spec.h"
#include "agent/status/phases.h"
#include "launcher/report/report.h"
#include "rendezvous/job/outcome.h"

namespace drun {

inline constexpr int kMostRankCases = 4096;

// `text`: the report in words, for the output of the test case "job".
std::string report_junit(const Outcome& outcome, int exit_code, const std::string& text);

// What --report writes to `path`: JUnit XML if its name ends in .xml, else JSON (report_json.h).
std::string report_for_file(std::string_view path, const Outcome& outcome, int exit_code,
                            const std::vector<WorkerPlacement>& placements,
                            const ReportStyle& style,
                            const std::optional<agent::PhaseTimes>& phase_times = {});

// `text` within an attribute or between tags.
std::string xml_text(std::string_view text);

}  // namespace drun
