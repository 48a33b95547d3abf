// core. Whether the lines of a job over ssh come to the starter as frames, to be kept in files
// here, and how they look on the console then.
//
// Rules:   --log-dir=DIR            one directory here, with a folder a rank of the whole job
//          --gather-logs            the same for what --redirects and --tee choose, without it
//          --no-gather-logs         each host keeps its own; so it is with --duplicate-...-filters
//          none of them             nothing is kept; lines come as text
// Errors:  Usage.   Thread: any.
#pragma once

#include <optional>

#include "agent/spec.h"
#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

// Whether the hosts' lines come here; then --log-dir and --gather-logs are not theirs.
bool gathers_here(const Options& options);

// Absent unless gathers_here().
Result<std::optional<OutputSpec>> plan_lines_home(const Options& options, const HostFacts& host);

}  // namespace drun::hosts
