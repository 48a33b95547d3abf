// core. drun(1), the manual page, as roff (groff_man(7)).
// Thread: any.
#pragma once

#include <span>
#include <string>

#include "launcher/cli/command_syntax.h"

namespace drun {

// Options and helper commands come from `commands`; the rest is in this function's source.
std::string man_page(std::span<const CommandSyntax> commands);

}  // namespace drun
