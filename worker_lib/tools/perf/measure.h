// edge. Measures one operation at one size, in timed blocks. Results are checked before the first
// block and after each.
//
// How:     on the host, each operation is done before the next one starts. On a GPU, as in
//          nccl-tests, many are queued on the stream, and the last one is waited for (messages: as
//          on the host).
// Units:   bytes as nccl-tests counts them: of the whole buffer for broadcast, reduce and
//          all_reduce; of all ranks' parts together for gather, all_gather, scatter, reduce_scatter
//          and all_to_all; of one message.
// Errors:  throws std::runtime_error for a wrong result, the group's WorkerError, BackendFailure
// for an
//          error of the GPU's driver, and std::bad_alloc.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "drun/process_group.h"
#include "worker_lib/nccl/gpu.h"
#include "worker_lib/tools/perf/options.h"

namespace drun::perf {

struct Place {
  bool is_shared = false;  // memory of alloc_shared
  // Null: host memory.
  std::shared_ptr<const worker::Gpu> gpu = nullptr;
  std::shared_ptr<const worker::OwnStream> stream = nullptr;  // of the GPU; operations follow it
};

// The place of this rank. Selects the GPU like the backend nccl: by local rank.
Place place_for(const Options& options, const ProcessGroup& group);
std::string to_string(const Place& place);  // "cpu", "cuda:0"

struct Measured {
  std::size_t bytes = 0;  // requested bytes, rounded to whole elements per rank
  std::size_t count = 0;  // elements
  double time_us = 0;     // median of blocks of operations, of the slowest rank
  double algbw_gbs = 0;   // bytes / time, in 10^9 bytes per second
  double busbw_gbs = 0;   // bus bandwidth as defined by nccl-tests
};

Measured measure(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes);

}  // namespace drun::perf
