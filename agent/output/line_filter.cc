#include "agent/output/line_filter.h"

#include <algorithm>
#include <utility>

#include "agent/output/line_buffer.h"

namespace drun::agent {

LineFilter::LineFilter(std::vector<std::string> substrings, std::string label)
    : substrings_(std::move(substrings)), label_(std::move(label)) {
  std::erase(substrings_, std::string());
}

void LineFilter::take(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    const bool ends_line = end != std::string_view::npos;
    if (ends_line && held_.empty()) {
      judge(piece, out);
    } else {
      held_.append(piece);
      if (ends_line || held_.size() > kLongestHeldBytes) end_of_stream(out);
    }
    bytes.remove_prefix(ends_line ? end + 1 : bytes.size());
  }
}

void LineFilter::end_of_stream(std::string& out) {
  if (!held_.empty()) judge(std::exchange(held_, {}), out);
}

void LineFilter::judge(std::string_view line, std::string& out) const {
  const auto is_in_line = [line](const std::string& text) { return line.find(text) != line.npos; };
  if (std::none_of(substrings_.begin(), substrings_.end(), is_in_line)) return;
  out.append(label_).append(line).push_back('\n');
}

}  // namespace drun::agent
