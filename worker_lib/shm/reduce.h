// core. Many arrays reduced into one, always from left to right: the same bits wherever it is done.
//
// Thread:  any.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <vector>

#include "drun/backend.h"
#include "worker_lib/math/reduce.h"

namespace drun::worker::shm {

// By rank. One for every call: without memory from the heap where ranks are few.
using Sources = boost::container::small_vector<const std::byte*, 16>;

class Reduction {
 public:
  // Of `call`'s type and op over so many ranks. Requires an op that the type has.
  Reduction(const Call& call, int ranks);

  // out[i] = sources[0][i] op sources[1][i] op ...; Avg divides. The same into each of `copies`.
  // `bytes`: whole elements. `out` may be one of the sources; `copies` too, of the same elements.
  void operator()(std::byte* out, const Sources& sources, std::size_t bytes,
                  const std::vector<std::byte*>& copies = {}) const;

 private:
  void reduce_block(std::byte* out, const Sources& sources, std::size_t begin_bytes,
                    std::size_t bytes) const;

  ReduceFunction function_;
  DataType type_;
  int element_shift_;  // elements are powers of two
  int divisor_;        // 1: none
};

}  // namespace drun::worker::shm
