// edge. The unit of timing: one operation at one size, with its memory.
//
// Owner:   a Trial keeps its buffers; the group outlives it.
// Thread:  any, one at a time; in the same order on every rank.
// Errors:  throws what the group and Buffer do.
#pragma once

#include <cstddef>
#include <functional>

#include "drun/process_group.h"
#include "worker_lib/tools/perf/buffer.h"
#include "worker_lib/tools/perf/options.h"

namespace drun::perf {

struct Trial {
  std::function<void()> fill{};
  std::function<void()> run{};    // done when it returns
  std::function<Work()> start{};  // the same, under way when it returns; absent: not to be had
  std::function<void()> check{};
  std::size_t count = 0;  // elements that make up its bytes
  double bus_factor = 1;
};

// Of about so many bytes, counted as in measure.h. A collective where memory is shared.
Trial make_trial(ProcessGroup& group, const Options& options, const Place& place,
                 std::size_t bytes);

}  // namespace drun::perf
