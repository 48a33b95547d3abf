// Helpers to build calls of a backend.
#pragma once

#include <chrono>
#include <vector>

#include "drun/backend.h"

namespace drun::test {

inline Deadline soon(std::chrono::milliseconds limit = std::chrono::seconds(40)) {
  return std::chrono::steady_clock::now() + limit;
}

inline Call all_reduce_of(std::vector<float>& data, ReduceOp op = ReduceOp::Sum) {
  return {.operation = Operation::AllReduce,
          .type = DataType::F32,
          .op = op,
          .input = data.data(),
          .output = data.data(),
          .count = data.size()};
}

}  // namespace drun::test
