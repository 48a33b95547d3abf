// core. The outcome as text for the console, the same on every node. Each fact appears once: the
// end of the stderr of the worker that failed first (unless the console has shown it already), a
// headline, and a few labeled lines. A successful job prints nothing.
#pragma once

#include <chrono>
#include <string>

#include "rendezvous/job/outcome.h"

namespace drun {

struct ReportStyle {
  std::string invoked_as = "drun";
  bool has_color = false;
  bool has_shown_stderr = false;       // the console has shown the stderr of the first failure
  int columns = 0;                     // width of the headline; 0: do not wrap
  std::chrono::seconds utc_offset{0};  // of local time
  std::string log_directory{};         // of this node; empty: no log files
  std::string report_file{};           // of this node; empty: none
};

// Text for stderr; ends with a newline. Empty if the job succeeded. Escapes control characters from
// workers, so that they cannot affect the terminal.
std::string report_text(const Outcome& outcome, const ReportStyle& style);

// "drun: message"; for a usage error, a second line refers to --help. Ends with a newline.
std::string error_text(const std::string& invoked_as, const Error& error);

}  // namespace drun
