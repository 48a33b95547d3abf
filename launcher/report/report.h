// core. The outcome of a job in all its forms: text for the console, JSON and JUnit XML for files,
// and the exit code.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/output/stderr_record.h"
#include "agent/spec.h"
#include "agent/status/phases.h"
#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// --- Text for the console, the same on every node
//
// Each fact appears once: the end of the stderr of the worker that failed first (unless the console
// has shown it already), a headline, and a few labeled lines. A successful job prints nothing.

struct ReportStyle {
  std::string invoked_as = "drun";
  bool has_color = false;
  bool has_shown_stderr = false;       // the console has shown the stderr of the first failure
  int columns = 0;                     // width of the headline; 0: do not wrap
  std::chrono::seconds utc_offset{0};  // of local time
  std::string log_directory{};         // of this node; empty: no log files
  std::string report_file{};           // of this node; empty: none
  // Collectives that ranks of this node had reported as timed out before the job was stopped.
  std::vector<agent::ReportedTimeout> timeouts{};
  bool operator==(const ReportStyle&) const = default;
};

// Text for stderr; ends with a newline. Empty if the job succeeded. Escapes control characters from
// workers, so that they cannot affect the terminal.
std::string report_text(const Outcome& outcome, const ReportStyle& style);

// "drun: message"; for a usage error, a second line refers to --help. Ends with a newline.
std::string error_text(const std::string& invoked_as, const Error& error);

// --- JSON (report_json.cc): `--report FILE`. See docs/reference/report.md for the schema.

// One indented JSON object; ends with a newline. `exit_code` is the exit code that drun will
// return. `placements` are those of this node's workers; empty if none was placed. `phase_times`
// are this node's; absent if no agent ran here. `timeouts`: see ReportStyle. Bytes that are not
// UTF-8 become U+FFFD. Never throws.
std::string report_json(const Outcome& outcome, int exit_code,
                        const std::vector<WorkerPlacement>& placements = {},
                        const std::optional<agent::PhaseTimes>& phase_times = {},
                        const std::vector<agent::ReportedTimeout>& timeouts = {});

// --- JUnit XML (report_junit.cc), for CI systems: `--report=job.xml`
//
// The job is a test suite. It has a test case "job", whose failure is the root cause, and a test
// case for each rank. A rank that failed is a failure; in a job that did not succeed, the other
// ranks were stopped and are skipped. Faults of --inject are properties of the suite.
//
// The output is UTF-8. Invalid bytes, and characters that XML does not allow, become U+FFFD. At
// most kMostRankCases ranks are listed; a property gives the number of the others.

inline constexpr int kMostRankCases = 4096;

// `text`: the text report, used as the output of the test case "job".
std::string report_junit(const Outcome& outcome, int exit_code, const std::string& text);

// The contents of the report file `path`: JUnit XML if the name ends in .xml, else JSON.
std::string report_for_file(std::string_view path, const Outcome& outcome, int exit_code,
                            const std::vector<WorkerPlacement>& placements,
                            const ReportStyle& style,
                            const std::optional<agent::PhaseTimes>& phase_times = {});

// Escapes `text` for use in an attribute or between tags.
std::string xml_text(std::string_view text);

// --- Exit codes, which are a public interface: see docs/reference/exit-codes.md.

inline constexpr int kUsage = 2;
inline constexpr int kRendezvousTimeout = 120;
inline constexpr int kRendezvousRefused = 121;
inline constexpr int kNodeLost = 122;
inline constexpr int kPreempted = 124;
inline constexpr int kSystemError = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

// In torchrun's style all failures give 1, and usage errors give 2.
int styled_code(int code, ExitCodeStyle style);

// 0 only for Succeeded.
int exit_code(const Outcome& outcome, ExitCodeStyle style);
int exit_code(const Error& error, ExitCodeStyle style);

}  // namespace drun
