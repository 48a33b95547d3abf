// Assertions for code that runs in rank processes, where Catch2 is not available, and a check of
// their exits.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/ranks.h"

namespace drun::test {

// Throws std::runtime_error with `what` if `is_so` is false.
inline void expect(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error("expected: " + what);
}

// Returns "usage: ..." for the WorkerError that the function throws.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const WorkerError& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "no error";
}

inline InitOptions over(const std::string& backend,
                        std::chrono::milliseconds timeout = std::chrono::seconds(40)) {
  InitOptions options;
  options.backend = backend;
  options.timeout = timeout;
  return options;
}

// Checks that every rank exited with this code.
void check_exited(const std::vector<RankEnd>& ends, int exit_code = 0);

}  // namespace drun::test
