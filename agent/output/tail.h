// core. The last lines of a stream, in flat memory: what a report shows of a worker's stderr.
//
// Units:   kTailBytes of the stream are kept (twice that in memory at most), whatever its length.
// Lines:   without line ends; of a progress bar only its last state; empty lines at the very end
//          are left out. The oldest may lack its beginning, a line longer than the limit its end
//          (then it ends with "...").
// Owner:   values.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace drun::agent {

inline constexpr std::size_t kTailBytes = std::size_t{32} << 10;
inline constexpr std::size_t kTailLines = 20;
inline constexpr std::size_t kTailLineBytes = std::size_t{4} << 10;

class Tail {
 public:
  void take(std::string_view bytes);
  // At most kTailBytes.
  std::string_view bytes() const;

 private:
  std::string bytes_;
};

// The last kTailLines of `bytes`, each of at most kTailLineBytes.
std::vector<std::string> last_lines(std::string_view bytes);

}  // namespace drun::agent
