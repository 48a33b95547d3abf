// core, except for CLI11's own output. The command line of drun-perf.
//
// Errors:  parse_options prints the error (or the help) and returns the exit code.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "drun/backend.h"

namespace drun::perf {

struct Options {
  std::string operation = "all_reduce";
  std::size_t min_bytes = 4;
  std::size_t max_bytes = std::size_t{64} << 20;
  std::string backend = "shm+tcp";
  bool is_on_gpu = false;  // the buffers; requires the backend nccl
  DataType type = DataType::F32;
  ReduceOp op = ReduceOp::Sum;
  int root = 0;
  bool is_json = false;
  bool is_shared = false;  // buffers from alloc_shared
  double seconds = 0.2;    // per size
};

// "barrier", "broadcast", ... "all_to_all", "send_recv".
std::vector<std::string> operation_names();

std::variant<Options, int> parse_options(int argc, const char* const* argv);

}  // namespace drun::perf
