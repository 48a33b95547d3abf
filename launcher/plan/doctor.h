// core. `drun doctor`: a job of one probe a node, in the place of the job that its options
// describe.
//
// Shape:   the same command line as the job's, with "doctor" in front; a program in it is not
//          started, only looked at.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/program.h"
#include "rendezvous/job/outcome.h"

namespace drun {

// --preflight: the probe's words in a job's first world.
std::vector<std::string> preflight_words(const Options& options, const HostFacts& host);
// Why it cannot be started here.
std::optional<CannotStart> check_probe(const HostFacts& host);

// The probe beside this drun, and what it is told.
Program doctor_program(const Options& options, const HostFacts& host);

// The end that the probe of node 0 gives the job when it has found problems, and said so.
bool is_verdict(const Outcome& outcome);
// A line of the agents' log that only says that.
bool is_about_verdict(std::string_view line);

}  // namespace drun
