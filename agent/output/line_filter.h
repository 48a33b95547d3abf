// core. Picks the lines that hold any of some substrings: --duplicate-stdout-filters and its twin.
//
// Lines:   end with '\n'; the last one at end_of_stream() gets one. Substrings are looked for in
//          the worker's own text, not in the label, and never empty (an empty one is left out). A
//          line longer than kLongestHeldBytes is judged by pieces of about that size.
// Owner:   a resource of one stream.   Thread: any, one at a time.   Errors: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace drun::agent {

class LineFilter {
 public:
  LineFilter(std::vector<std::string> substrings, std::string label);

  // Appends the picked lines, each with the label in front, to `out`.
  void take(std::string_view bytes, std::string& out);
  void end_of_stream(std::string& out);

 private:
  void judge(std::string_view line, std::string& out) const;

  std::vector<std::string> substrings_;
  std::string label_;
  std::string held_;
};

}  // namespace drun::agent
