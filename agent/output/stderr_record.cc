#include "agent/output/stderr_record.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/job/stderr_lines.h"

namespace drun::agent {
namespace {

// Without PyTorch's "[rank1]: ", and with all other blanks. Each init_process_group() of a process
// adds one.
std::string_view behind_rank_mark(std::string_view line) {
  while (line.starts_with("[rank")) {
    const std::size_t end = line.find("]:");
    if (end == line.npos || end > 16) break;
    line.remove_prefix(end + 2);
    if (line.starts_with(' ')) line.remove_prefix(1);
  }
  return line;
}

// A C++ frame that PyTorch prints behind an error: "frame #7: ...", or with
// TORCH_SHOW_CPP_STACKTRACES=1 "#7 c10::Error::Error(...) from /x/libc10.so:714418".
bool is_frame_of_torch(std::string_view line) {
  constexpr std::string_view kDigits = "0123456789";
  line = behind_rank_mark(line);
  if (line.starts_with("frame #")) return true;
  if (!line.starts_with('#')) return false;
  line = trimmed(line);
  const std::size_t number = line.find_last_not_of(kDigits);
  return line.size() > 1 && kDigits.find(line[1]) != kDigits.npos &&
         line.find(" from ") != line.npos && line[number] == ':' && number + 1 < line.size();
}

std::string as_shown(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (const std::size_t last = line.rfind('\r'); last != line.npos) line.remove_prefix(last + 1);
  if (line.size() <= kTailLineBytes) return std::string(line);
  std::string cut(line.substr(0, kTailLineBytes - 3));
  return cut.append("...");
}

}  // namespace

void Tail::take(std::string_view bytes) {
  if (bytes.size() >= kTailBytes) {
    bytes_.assign(bytes.substr(bytes.size() - kTailBytes));
    return;
  }
  // Moves the kept half only if the other half is full, so that each byte is copied at most once.
  if (bytes_.size() + bytes.size() > 2 * kTailBytes) bytes_.erase(0, bytes_.size() - kTailBytes);
  bytes_.append(bytes);
}

std::string_view Tail::bytes() const {
  const std::string_view all = bytes_;
  return all.substr(all.size() - std::min(all.size(), kTailBytes));
}

std::vector<std::string> last_lines(std::string_view bytes) {
  while (bytes.ends_with('\n') || bytes.ends_with('\r')) bytes.remove_suffix(1);
  std::vector<std::string> lines;
  while (!bytes.empty() || !lines.empty()) {
    const std::size_t before = bytes.rfind('\n');
    const std::string_view line = before == bytes.npos ? bytes : bytes.substr(before + 1);
    if (!is_frame_of_torch(line)) lines.push_back(as_shown(line));
    if (before == bytes.npos || lines.size() == kTailLines) break;
    bytes = bytes.substr(0, before);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";
constexpr std::string_view kCurrentThread = "Current thread 0x";  // of Python's faulthandler
constexpr std::size_t kMostErrorLineBytes = std::size_t{1} << 10;
constexpr std::size_t kMostBehindBytes = 256;  // so that the error itself stays in the block
constexpr std::size_t kMostForeignLines = 50;
constexpr std::size_t kCarriedHeadBytes = kMostErrorLineBytes;
constexpr std::size_t kCarriedEndBytes = 64;  // more than kTraceback

bool is_chain_line(std::string_view text) {
  return text.starts_with("During handling of the above exception") ||
         text.starts_with("The above exception was the direct cause");
}

// False for almost all lines, by their first bytes: take_line() would skip them.
bool may_matter(std::string_view line) {
  if (line.empty()) return false;
  if (line.back() == ':' || line.back() == '\r') return true;
  if (line.front() == ' ' || line.front() == '\t')
    return line.substr(0, 32).find("what") != line.npos;
  if (line.front() == '[') return line.starts_with("[rank") || line.starts_with("[F");
  constexpr auto kBegins = std::to_array<std::string_view>(
      {"F", "f", "Assertion", "CUDA error", kCurrentThread, "During handling", "Exception ignored",
       "HIP error", "The above exception", "terminate called", "thread '"});
  const auto begins = [line](std::string_view text) { return line.starts_with(text); };
  if (std::any_of(kBegins.begin(), kBegins.end(), begins)) return true;
  // "a.out: ...", "ValueError: ...", and the name of an exception without a text.
  const std::size_t blank = line.substr(0, kMostErrorLineBytes).find(' ');
  if (blank != line.npos) return line[blank - 1] == ':';
  const char end = line.back();
  return end == 'r' || end == 'n' || end == 't';
}

}  // namespace

// Of a long traceback, the last calls are kept.
void LastError::Block::add(std::string_view line) {
  line = line.substr(0, kMostErrorLineBytes);
  lines.emplace_back(line);
  size_bytes += line.size() + 1;
  while (lines.size() > 2 &&
         (lines.size() > kMostErrorBlockLines || size_bytes > kMostErrorBlockBytes)) {
    size_bytes -= lines[1].size() + 1;
    lines.erase(lines.begin() + 1);
  }
}

void LastError::take(std::string_view bytes, WallTime read_at) {
  read_at_ = read_at;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool is_whole = end != bytes.npos;
    const std::string_view part = bytes.substr(0, end);
    bytes.remove_prefix(is_whole ? end + 1 : bytes.size());
    if (!is_whole || !carried_.empty()) carry(part);
    if (is_whole) take_line(carried_.empty() ? part : std::string_view(carried_));
    if (is_whole) carried_.clear();
  }
}

void LastError::carry(std::string_view part) {
  constexpr std::size_t kMost = 4 * kCarriedHeadBytes;
  if (part.size() > kMost) {
    carried_.append(part.substr(0, kCarriedHeadBytes));
    part.remove_prefix(part.size() - kCarriedEndBytes);
  }
  carried_.append(part);
  if (carried_.size() > kMost)
    carried_.erase(kCarriedHeadBytes, carried_.size() - kCarriedHeadBytes - kCarriedEndBytes);
}

void LastError::take_line(std::string_view line) {
  ++line_number_;
  if (state_ == State::Other && !is_ignored_ && !may_matter(line)) return;
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::string_view marked = behind_rank_mark(line);
  const bool is_ignored = std::exchange(is_ignored_, false);
  // It may follow a progress bar.
  if (marked.ends_with(kTraceback)) {
    state_ = is_ignored ? State::Ignored : State::Traceback;
    open_ = std::exchange(is_chained_, false) ? exception_ : Block();
    open_.add(kTraceback);
    foreign_lines_ = 0;
    return;
  }
  if (state_ == State::Traceback || state_ == State::Ignored)
    return take_line_of_traceback(line, marked);
  const bool is_indented = marked.starts_with(' ') || marked.starts_with('\t');
  const std::string_view text = is_indented ? trimmed(marked) : marked;
  if (text.starts_with("Exception ignored ")) {
    is_ignored_ = true;
    may_be_repeated_ = !exception_.lines.empty() && exception_.line_number + 1 == line_number_;
    state_ = State::Other;
  } else if (is_chain_line(text)) {
    is_chained_ = true;
    state_ = State::Other;
  } else if (!is_indented && state_ != State::BehindException && is_exception_line(text)) {
    if (is_ignored) return;
    begin(exception_, line);
    state_ = State::BehindException;
  } else if (state_ != State::BehindFatal && is_fatal_line(text)) {
    begin(fatal_, line);
    state_ = State::BehindFatal;
  } else if (state_ != State::Other) {
    continue_block(line);
  } else if (text.starts_with(kCurrentThread) && !fatal_.lines.empty() &&
             fatal_.lines.front().find("Fatal Python error") != std::string::npos) {
    fatal_.add(line);
    fatal_.line_number = line_number_;
    lines_behind_ = 0;
    state_ = State::BehindFatal;
  }
}

void LastError::take_line_of_traceback(std::string_view line, std::string_view text) {
  if (text.starts_with(' ') || text.starts_with('\t')) return open_.add(line);
  if (!may_end_traceback(text)) {
    if (++foreign_lines_ > kMostForeignLines) state_ = State::Other;
    return;
  }
  if (std::exchange(state_, State::Other) == State::Ignored) {
    // Cython prints the traceback before "Exception ignored", too.
    if (may_be_repeated_ && exception_.lines.back() == line) exception_ = replaced_;
    return;
  }
  replaced_ = std::exchange(exception_, std::exchange(open_, Block()));
  exception_.add(line);
  exception_.read_at = read_at_;
  exception_.line_number = line_number_;
  lines_behind_ = 0;
  state_ = State::BehindException;
}

void LastError::begin(Block& block, std::string_view line) {
  block = Block{.read_at = read_at_, .line_number = line_number_};
  block.add(line);
  lines_behind_ = 0;
  is_chained_ = false;
}

// Until an empty line.
void LastError::continue_block(std::string_view line) {
  if (is_frame_of_torch(line)) return;
  if (behind_rank_mark(line).empty() || ++lines_behind_ > kMostLinesBehind) {
    state_ = State::Other;
    return;
  }
  (state_ == State::BehindException ? exception_ : fatal_).add(line.substr(0, kMostBehindBytes));
}

std::string LastError::before(std::uint64_t shown_lines, WallTime now) const {
  std::array<const Block*, 2> blocks{&exception_, &fatal_};
  if (exception_.line_number > fatal_.line_number) std::swap(blocks[0], blocks[1]);
  std::string text;
  for (const Block* block : blocks) {
    if (block->lines.empty()) continue;
    const std::uint64_t lines_since = line_number_ - block->line_number;
    if (lines_since < shown_lines) return "";
    if (lines_since > kCountsForLines || now - block->read_at > kCountsFor) continue;
    for (const std::string& line : block->lines) text += line + "\n";
  }
  return text;
}

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
  constexpr std::string_view kHead = "[rank";
  constexpr std::string_view kHeadEnd = "]:";
  if (kHead.starts_with(head)) return true;
  if (head.starts_with(kHead)) {
    head.remove_prefix(kHead.size());
    while (!head.empty() && is_digit(head.front())) head.remove_prefix(1);
    if (kHeadEnd.starts_with(head)) return true;
    if (!head.starts_with(kHeadEnd)) return false;
    head.remove_prefix(kHeadEnd.size());
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
