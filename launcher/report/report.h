// core. The outcome as text for the console, the same on every node. Each fact appears once: the
// last stderr of the worker that failed first (unless the console has it already), a headline, and
// a few labelled lines. A successful job prints nothing.
#pragma once

#include <chrono>
#include <string>

#include "rendezvous/job/outcome.h"

namespace drun {

struct ReportStyle {
  std::string invoked_as = "drun";
  bool has_colour = false;
  bool has_shown_stderr = false;       // the console has the stderr of the worker that failed first
  int columns = 0;                     // the headline is wrapped to it; 0: not at all
  std::chrono::seconds utc_offset{0};  // of local time
  std::string log_directory{};         // of this node; empty: no files were kept
  std::string report_file{};           // of this node; empty: none was written
};

// Text for stderr; ends with a newline, or is empty if the job succeeded. Control characters from
// workers are escaped, so that they cannot change the terminal.
std::string report_text(const Outcome& outcome, const ReportStyle& style);

// "drun: message"; for a usage error with a second line that names --help. Ends with a newline.
std::string error_text(const std::string& invoked_as, const Error& error);

}  // namespace drun
