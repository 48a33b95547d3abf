// core. The outcome as JUnit XML, for CI systems: `--report=job.xml`.
//
// The job is a test suite. It has a test case "job", whose failure is the root cause, and a test
// case for each rank. A rank that failed is a failure; in a job that did not succeed, the other
// ranks were stopped and are skipped. Faults of --inject are properties of the suite.
//
// The output is UTF-8. Invalid bytes, and characters that XML does not allow, become U+FFFD. At
// most kMostRankCases ranks are listed; a property gives the number of the others.
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

// `text`: the text report, used as the output of the test case "job".
std::string report_junit(const Outcome& outcome, int exit_code, const std::string& text);

// The contents of the report file `path`: JUnit XML if the name ends in .xml, else JSON
// (report_json.h).
std::string report_for_file(std::string_view path, const Outcome& outcome, int exit_code,
                            const std::vector<WorkerPlacement>& placements,
                            const ReportStyle& style,
                            const std::optional<agent::PhaseTimes>& phase_times = {});

// Escapes `text` for use in an attribute or between tags.
std::string xml_text(std::string_view text);

}  // namespace drun
