// core. Whether the output lines of a job over ssh are sent to the launcher as frames, to be logged
// here, and their format on the console in that case.
//
//          --log-dir=DIR            one directory here, with a folder per rank of the whole job
//          --gather-logs            the same for --redirects and --tee without --log-dir
//          --no-gather-logs         each host keeps its logs; so do --duplicate-...-filters
//          none of them             no logs; lines are sent as text
// Errors:  Usage.
#pragma once

#include <optional>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// Whether the hosts' lines are sent here. The hosts then do not get --log-dir and --gather-logs.
bool gathers_here(const Options& options);

// Absent unless gathers_here().
Result<std::optional<OutputSpec>> plan_lines_home(const Options& options, const HostFacts& host);

}  // namespace drun::hosts
