// core. The picture of `drun status --watch` on a terminal: the status as text, and below it the
// states of each node in the last seconds.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace drun {

struct ScreenSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// Overwrites the previous picture without clearing it first, so that it does not flicker. Lines are
// cut to the columns; if there are more lines than rows, the last row says how many are missing.
std::string repaint(std::string_view text, ScreenSize size);

// One letter per query and node of a job, for the nodes that its status lists.
class StateHistory {
 public:
  // `job_json`: schema drun.job/1; anything else is ignored.
  void add(std::string_view job_json);
  // Empty without nodes. The latest letters that fit into `columns`, for the first nodes.
  std::string text(std::size_t columns, bool has_color) const;

 private:
  static constexpr std::size_t kMostNodes = 32;
  static constexpr std::size_t kMostLetters = 512;

  // By job and row; the name and the letters.
  std::map<std::pair<std::string, std::size_t>, std::pair<std::string, std::string>> nodes_;
};

}  // namespace drun
