// edge. Whether this process has been forked since something was made: threads, connections and
// shared memory of a group stay the parent's.
// Thread: any.
#pragma once

namespace drun::worker {

// How many forks lie between the first call in an ancestor and this process.
int fork_generation();

}  // namespace drun::worker
