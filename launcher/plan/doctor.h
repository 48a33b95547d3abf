// core. `drun doctor`: a job with one probe per node, in place of the job that its options
// describe.
//
// The command line is that of the job with "doctor" in front. A program on it is checked but not
// started.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/programs.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// --preflight: the command line of the probe in the job's first world.
std::vector<std::string> preflight_words(const HostFacts& host);
// Why the probe cannot be started here.
std::optional<CannotStart> check_probe(const HostFacts& host);

// The probe, which is in the folder of this drun, and its arguments.
Program doctor_program(const Options& options, const HostFacts& host);

// Whether the job ended because the probe of node 0 found problems, which it has already printed.
bool is_verdict(const Outcome& outcome);
// Whether a line of drun's log is shown: not if it only repeats that, or if the table's reader has
// closed its pipe, as `head` does.
bool is_logged_by_doctor(std::string_view line);

}  // namespace drun
