// core. Keeps a flood of bad connections from becoming a flood of lines: so many a second, and then
// how many were left out.
//
// Owner:   a value, beside the Log it protects.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace drun {

class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit LogLimit(std::size_t most_per_second = 5) : most_per_second_(most_per_second) {}

  // May another line be written?
  bool allows(Time now);
  // " left_out=7": lines that were not allowed since the last that was; to be put at its end. Empty
  // if none.
  std::string left_out();

 private:
  std::size_t most_per_second_;
  Time second_{};
  std::size_t written_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace drun
