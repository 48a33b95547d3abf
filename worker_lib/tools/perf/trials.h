// edge. One operation at one size with its memory, which is the unit of timing.
//
// Owner:   a Trial owns its buffers; the group outlives it.
// Thread:  any, one at a time; in the same order on every rank.
// Errors:  throws the errors of the group and Buffer.
#pragma once

#include <cstddef>
#include <functional>

#include "drun/process_group.h"
#include "worker_lib/tools/perf/buffer.h"
#include "worker_lib/tools/perf/options.h"

namespace drun::perf {

struct Trial {
  std::function<void()> fill{};
  std::function<Work(const OpOptions&)> run{};
  std::function<void()> check{};
  std::size_t count = 0;  // elements in `bytes`
  bool takes_async_op = true;
  double bus_factor = 1;
};

// A trial of about this number of bytes, counted as in measure.h. A collective if memory is shared.
Trial make_trial(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes);

}  // namespace drun::perf
