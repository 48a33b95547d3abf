// core. The outcome in words: the root cause first, the same on every node. Success says nothing.
//
// Owner:   a value.   Thread: any.
#pragma once

#include <chrono>
#include <string>

#include "rendezvous/job/outcome.h"

namespace drun {

struct ReportStyle {
  std::string invoked_as = "drun";
  bool has_colour = false;
  int columns = 80;                    // rules and wrapping; never cuts a line of a traceback
  std::chrono::seconds utc_offset{0};  // of local time
  std::string log_directory{};         // this node's; empty: no files were kept
  std::string report_file{};           // this node's; empty: none was written
};

// Text for stderr, ends with a newline; empty when the job succeeded. Control characters in what
// workers wrote are made visible, so that they cannot repaint the terminal.
std::string report_text(const Outcome& outcome, const ReportStyle& style);

// "drun: message" with a hint to --help for a usage error; ends with a newline.
std::string error_text(const std::string& invoked_as, const Error& error);

}  // namespace drun
