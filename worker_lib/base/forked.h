// edge. Detects whether this process was forked since an object was created: threads, connections
// and shared memory of a group belong to the parent. Thread: any.
#pragma once

namespace drun::worker {

// The number of forks between the first call in an ancestor and this process.
int fork_generation();

}  // namespace drun::worker
