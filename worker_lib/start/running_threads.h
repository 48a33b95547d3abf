// edge. How many threads of this process still run code of the program.
// Thread:  any.
// Errors:  never throws for the system's reasons; where /proc tells nothing, 1.
// Source:  proc(5), /proc/self/task/TID/stat. A joined thread stays listed there for a moment: the
//          kernel wakes the joiner (CLONE_CHILD_CLEARTID) before it takes the thread off the list.
//          It bears PF_EXITING by then, and is not counted.
#pragma once

#include <cstddef>

namespace drun::worker {

std::size_t running_threads();

}  // namespace drun::worker
