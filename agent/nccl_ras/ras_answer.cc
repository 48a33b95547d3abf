#include "agent/nccl_ras/ras_answer.h"

#include <utility>

namespace drun::agent::ras {
namespace {

constexpr std::size_t kMostLine = 4096;

}  // namespace

bool Answer::take(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > kMostAnswerBytes) is_broken_ = true;
  while (!bytes.empty() && !is_broken_ && !is_json_) {
    if (line_.empty() && bytes.front() == '{') {
      is_json_ = true;
      break;
    }
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMostLine) is_broken_ = true;
    if (end == bytes.npos) return !is_broken_;
    bytes.remove_prefix(end + 1);
    is_broken_ = is_broken_ || !take_line(line_);
    line_.clear();
  }
  if (is_json_ && !is_broken_) is_broken_ = !is_greeted_ || !json_.take(bytes);
  return !is_broken_;
}

bool Answer::take_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!is_greeted_) return is_greeted_ = line.starts_with("SERVER PROTOCOL ");
  return text_.take(line);
}

std::optional<Report> Answer::finish() {
  if (!is_json_ && !is_broken_ && !line_.empty()) is_broken_ = !take_line(line_);
  const bool is_whole = is_json_ ? json_.is_complete() : text_.is_complete();
  if (is_broken_ || !is_whole) return std::nullopt;
  return std::move(report_);
}

}  // namespace drun::agent::ras
