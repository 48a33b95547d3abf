// edge. Counts the threads of this process that still run code of the program.
// Thread:  any.
// Errors:  does not throw; returns 1 if /proc cannot be read.
// Source:  proc(5), /proc/self/task/TID/stat. A joined thread stays listed there for a moment,
//          because the kernel wakes the joiner (CLONE_CHILD_CLEARTID) before it removes the thread
//          from the list. It has PF_EXITING by then, and is not counted.
#pragma once

#include <cstddef>

namespace drun::worker {

std::size_t running_threads();

}  // namespace drun::worker
