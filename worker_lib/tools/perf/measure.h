// edge. One operation at one size: timed in blocks, and checked before the first and after each.
//
// How:     on the host, operations one after the other, each done before the next; on a GPU, as
//          nccl-tests does, many put into the stream in a row, and the last waited for (messages:
//          as on the host).
// Units:   bytes as nccl-tests counts them: of the whole buffer of broadcast, reduce and
//          all_reduce; of all ranks' parts together for gather, all_gather, scatter,
//          reduce_scatter and all_to_all; of a message.
// Errors:  throws std::runtime_error for a wrong result, WorkerError as the group does,
//          BackendFailure for what the GPU's driver refuses.
#pragma once

#include <cstddef>

#include "drun/process_group.h"
#include "worker_lib/tools/perf/buffer.h"
#include "worker_lib/tools/perf/options.h"

namespace drun::perf {

struct Measured {
  std::size_t bytes = 0;  // as near to what was asked for as whole elements for every rank are
  std::size_t count = 0;  // elements
  double time_us = 0;     // median of blocks of operations, of the slowest rank
  double algbw_gbs = 0;   // bytes / time, in 10^9 bytes a second
  double busbw_gbs = 0;   // what a link would have to carry, as nccl-tests defines it
};

Measured measure(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes);

}  // namespace drun::perf
