#include "launcher/commands/log_lines.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <utility>

namespace drun {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{64} << 10;

// Searches from the end: a file may be much longer than its last lines.
std::uint64_t offset_of_last_lines(const ReadAt& read, std::uint64_t size_bytes,
                                   std::size_t lines) {
  std::uint64_t block_end = size_bytes;
  std::size_t ends = 0;  // line ends found, without one at the end of the file
  while (block_end > 0) {
    const std::uint64_t begin = block_end - std::min<std::uint64_t>(block_end, kBlockBytes);
    const std::string block = read(begin, static_cast<std::size_t>(block_end - begin));
    for (std::size_t at = block.size(); at-- > 0;) {
      const bool is_last_byte = begin + at + 1 == size_bytes;
      if (block[at] == '\n' && !is_last_byte && ++ends == lines) return begin + at + 1;
    }
    block_end = begin;
  }
  return 0;
}

std::uint64_t offset_of_last_matches(const ReadAt& read, std::uint64_t size_bytes,
                                     const TailWish& wish) {
  std::deque<std::uint64_t> found;  // beginnings of the last lines that match
  std::string line;
  std::uint64_t line_begin = 0;
  const auto note = [&] {
    if (wish.pattern->matches(line)) found.push_back(line_begin);
    if (found.size() > wish.lines) found.pop_front();
  };
  for (std::uint64_t at = 0; at < size_bytes;) {
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(kBlockBytes, size_bytes - at));
    const std::string block = read(at, wanted);
    if (block.empty()) break;
    for (std::size_t begin = 0; begin < block.size();) {
      const std::size_t end = block.find('\n', begin);
      line.append(block, begin, end == block.npos ? end : end - begin);
      if (line.size() > LogLines::kLongestLineBytes) line.resize(LogLines::kLongestLineBytes);
      if (end == block.npos) break;
      note();
      line.clear();
      begin = end + 1;
      line_begin = at + begin;
    }
    at += block.size();
  }
  if (!line.empty()) note();
  return found.empty() ? size_bytes : found.front();
}

}  // namespace

void LinePattern::Free::operator()(regex_t* compiled) const {
  regfree(compiled);
  delete compiled;
}

LinePattern::LinePattern(const std::string& text) {
  const int code = regcomp(compiled_.get(), text.c_str(), REG_EXTENDED | REG_NOSUB);
  assert(code == 0);
  static_cast<void>(code);
}

bool LinePattern::matches(std::string_view line) const {
  regmatch_t part{};
  part.rm_so = 0;
  part.rm_eo = static_cast<regoff_t>(line.size());  // REG_STARTEND: the line may contain zeros
  const char* const text = line.empty() ? "" : line.data();
  return regexec(compiled_.get(), text, 1, &part, REG_STARTEND) == 0;
}

LogLines::LogLines(std::string label, const LinePattern* pattern)
    : label_(std::move(label)), pattern_(pattern) {}

void LogLines::take(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end == bytes.npos) break;
    if (held_.empty()) {
      put(bytes.substr(0, end), out);
    } else {
      held_.append(bytes.substr(0, end));
      put_held(out);
    }
    bytes.remove_prefix(end + 1);
  }
  held_.append(bytes);
  if (held_.size() > kLongestLineBytes) put_held(out);
}

void LogLines::end(std::string& out) {
  if (!held_.empty()) put_held(out);
}

void LogLines::put_held(std::string& out) {
  put(held_, out);
  held_.clear();
}

void LogLines::put(std::string_view line, std::string& out) const {
  if (pattern_ != nullptr && !pattern_->matches(line)) return;
  out.append(label_).append(line).append("\n");
}

std::uint64_t tail_offset(const ReadAt& read, std::uint64_t size_bytes, const TailWish& wish) {
  if (wish.lines == 0) return size_bytes;
  return wish.pattern != nullptr ? offset_of_last_matches(read, size_bytes, wish)
                                 : offset_of_last_lines(read, size_bytes, wish.lines);
}

}  // namespace drun
