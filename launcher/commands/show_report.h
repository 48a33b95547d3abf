// edge. `drun report`: reads event files and writes the job that is in them as a page or as text.
#pragma once

#include <string>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// Gives the exit code: 0; 1 when a file cannot be read or written, or has no events.
int show_report(const ReportCommand& command, const HostFacts& host);

// The page for --report=FILE.html, of the events of one or more agents; without any, of the
// outcome.
std::string html_report_of(const std::string& events, const Outcome& outcome);

}  // namespace drun
