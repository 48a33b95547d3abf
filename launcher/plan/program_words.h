// core. Programs on their way to the agents of other machines, as words that parse_programs.h reads
// there.
// Errors:  Usage, naming program and option.   Thread: any.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"

namespace drun {

// The same with the values that `-x VAR` has here. A variable that is not set is a warning.
Result<std::vector<ProgramOptions>> with_values(std::vector<ProgramOptions> programs,
                                                const HostFacts& host, Remarks& remarks);

// The programs of a node, with their numbers there as --nproc-per-node; to stand at the end of its
// agent's options. One program is such a list, too.
std::vector<std::string> program_words(const std::vector<ProgramOptions>& programs);

// A word of those as it may be shown: a variable's value may be a secret of the user's.
std::string shown_word(const std::string& word, const std::vector<ProgramOptions>& programs);

}  // namespace drun
