// core. drun's helpers, `drun store`, `drun status` and `drun stacks`: a first word that is exactly
// such a name.
//
// Errors:  Usage, as parse_command_line.   Thread: any.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "launcher/options.h"

namespace drun {

// Nothing: the first word names no helper. `words` is argv without argv[0].
std::optional<Result<Command>> parse_helper_command(std::span<const std::string> words,
                                                    const Lookup& variables);

}  // namespace drun
