// core. The helper commands (`drun store`, `drun status` ...): their options, and the syntax of all
// commands, from which completions and the manual page are generated.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/options.h"

namespace drun {

// nullopt if the first word is not a helper command. `words` is argv without argv[0].
std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables);

// The first one is drun itself, the last one `drun doctor`.
std::vector<CommandSyntax> command_syntaxes();

}  // namespace drun
