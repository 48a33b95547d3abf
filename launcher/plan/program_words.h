// core. Encodes programs as command line words for the agents of other machines; parse_programs.h
// parses them.
// Errors:  Usage, naming program and option.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/facts/host.h"
#include "launcher/plan/rendezvous.h"
#include "rendezvous/base/result.h"

namespace drun {

// Replaces `-x VAR` by the value of VAR here. Warns about a variable that is not set.
Result<std::vector<ProgramOptions>> with_values(std::vector<ProgramOptions> programs,
                                                const HostFacts& host, PlanNotes& notes);

// Encodes the programs of a node, with their local numbers of workers as --nproc-per-node. The
// words must be the last ones of the agent's options. Also valid for a single program.
std::vector<std::string> program_words(const std::vector<ProgramOptions>& programs);

// One of those words as it may be printed. Hides values of variables, which may be secrets.
std::string shown_word(const std::string& word, const std::vector<ProgramOptions>& programs);

}  // namespace drun
