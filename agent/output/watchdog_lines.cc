#include "agent/output/watchdog_lines.h"

#include <algorithm>
#include <utility>

namespace drun::agent {
namespace {

constexpr std::size_t kLogSourceBytes = 96;  // within which it is
constexpr std::size_t kLogHeadBytes = 256;   // kept; with the operation that timed out
constexpr std::string_view kLogSource = " ProcessGroupNCCL.cpp:";
constexpr std::string_view kTimeoutReport = "Watchdog caught collective operation timeout";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The first byte of a line of PyTorch's log, or of one that may follow it.
bool may_begin_line(char c) { return c == '[' || c == '#' || c == '\n'; }

// Whether `head` begins like a line of PyTorch's log, as far as it goes: "[rank1]:[E1127 ", "[W ".
bool is_log_head(std::string_view head) {
  constexpr std::string_view kRank = "[rank";
  constexpr std::string_view kRankEnd = "]:";
  if (kRank.starts_with(head)) return true;
  if (head.starts_with(kRank)) {
    head.remove_prefix(kRank.size());
    while (!head.empty() && is_digit(head.front())) head.remove_prefix(1);
    if (kRankEnd.starts_with(head)) return true;
    if (!head.starts_with(kRankEnd)) return false;
    head.remove_prefix(kRankEnd.size());
  }
  constexpr std::string_view kSeverities = "IWEF";
  if (!head.empty() && head[0] != '[') return false;
  if (head.size() > 1 && kSeverities.find(head[1]) == kSeverities.npos) return false;
  return head.size() <= 2 || head[2] == ' ' || is_digit(head[2]);
}

}  // namespace

std::size_t WatchdogLines::take(std::string_view bytes, WallTime read_at) {
  std::size_t others = 0;
  if (kind_ == Kind::Other) kind_ = Kind::Unknown;
  while (!bytes.empty()) {
    if (head_.empty() && !may_begin_line(bytes.front())) kind_ = Kind::Other;
    // A progress bar ends its line with '\r'.
    const std::size_t end = kind_ == Kind::Unknown ? bytes.find_first_of("\r\n") : bytes.find('\n');
    const bool is_whole = end != bytes.npos;
    const std::string_view part = bytes.substr(0, is_whole ? end + 1 : end);
    bytes.remove_prefix(part.size());
    held_bytes_ += part.size();
    if (kind_ != Kind::Other) head_.append(part.substr(0, kLogHeadBytes - head_.size()));
    if (kind_ == Kind::Unknown) kind_ = kind_of_line(is_whole);
    if (kind_ == Kind::Other) others += held_bytes_;
    if (kind_ != Kind::Unknown) held_bytes_ = 0;
    const bool is_watchdog = kind_ == Kind::Watchdog;
    if (is_watchdog && is_whole && !first_timeout_ && head_.find(kTimeoutReport) != head_.npos)
      first_timeout_ = Timeout{head_, read_at};
    if (is_whole || kind_ == Kind::Other) {
      follows_watchdog_ = is_watchdog;
      head_.clear();
    }
    if (is_whole) kind_ = Kind::Unknown;
  }
  return others;
}

WatchdogLines::Kind WatchdogLines::kind_of_line(bool is_whole) const {
  if (follows_watchdog_ && (head_.front() == '#' || head_.front() == '\n')) return Kind::Watchdog;
  if (!is_log_head(head_)) return Kind::Other;
  if (std::string_view(head_).substr(0, kLogSourceBytes).find(kLogSource) != head_.npos)
    return Kind::Watchdog;
  return is_whole || head_.size() >= kLogSourceBytes ? Kind::Other : Kind::Unknown;
}

}  // namespace drun::agent
