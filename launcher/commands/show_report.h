// edge. `drun report`: reads event files and writes their job as a page or as text.
#pragma once

#include <string>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// Returns the exit code: 0, or 1 if a file cannot be read or written, or has no events.
int show_report(const ReportCommand& command, const HostFacts& host);

// The page for --report=FILE.html, from the events of one or more agents, or from the outcome if
// there are no events.
std::string html_report_of(const std::string& events, const Outcome& outcome);

}  // namespace drun
