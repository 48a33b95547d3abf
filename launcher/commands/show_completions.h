// edge. `drun --complete`: what a shell asks when the user presses the tab key.
// Thread: any; asks this machine's agents, for half a second at most.
#pragma once

#include "launcher/cli/options.h"

namespace drun {

int show_completions(const CompleteCommand& command);

}  // namespace drun
