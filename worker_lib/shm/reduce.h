// core. Reduces several arrays into one, always from left to right, so that the result has the same
// bits on every rank. Thread: any.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker::shm {

// By rank. Created per call, so it avoids heap allocation for up to 16 ranks.
using Sources = boost::container::small_vector<const std::byte*, 16>;

class Reduction {
 public:
  // For `call`'s type and op, over `ranks` ranks. Requires that the type supports the op.
  Reduction(const Call& call, int ranks);

  // out[i] = sources[0][i] op sources[1][i] op ... ; Avg then divides. Also writes the result to
  // each of `copies`. `bytes` must be whole elements. `out` and `copies` may be sources, with the
  // same elements.
  void operator()(std::byte* out, const Sources& sources, std::size_t bytes,
                  const std::vector<std::byte*>& copies = {}) const;

 private:
  void reduce_block(std::byte* out, const Sources& sources, std::size_t begin_bytes,
                    std::size_t bytes) const;

  ReduceFunction function_;
  DataType type_;
  int element_shift_;  // log2 of the element size
  int divisor_;        // 1: none
};

}  // namespace drun::worker::shm
