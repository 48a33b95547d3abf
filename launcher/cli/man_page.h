// core. Generates the manual page drun(1) in roff (groff_man(7)).
#pragma once

#include <span>
#include <string>

#include "launcher/cli/arguments.h"

namespace drun {

// Options and helper commands come from `commands`; the other text is in the source.
std::string man_page(std::span<const CommandSyntax> commands);

}  // namespace drun
