// For tests whose deeds are done in ranks, where Catch is not: what a rank may not go on without,
// what it says of itself, and the check of how it ended.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "drun/process_group.h"
#include "tests/support/ranks.h"

namespace drun::test {

// Throws what was expected.
inline void expect(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error("expected: " + what);
}

// "usage: ..." of the WorkerError that `deed` throws.
inline std::string error_of(const std::function<void()>& deed) {
  try {
    deed();
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

// Every rank ended by itself, with this exit code.
void check_exited(const std::vector<RankEnd>& ends, int exit_code = 0);

}  // namespace drun::test
