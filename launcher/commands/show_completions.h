// edge. `drun --complete`: called by a shell when the user presses the tab key. Queries this
// machine's agents, for up to 0.5 s.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

int show_completions(const CompleteCommand& command);

}  // namespace drun
