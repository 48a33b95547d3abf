#include "agent/output/line_buffer.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace drun::agent {
namespace {

constexpr std::size_t kWorthReleasingBytes = std::size_t{2} << 20;

// A piece of a bar is drawn from column 0 and does not end the line before something is drawn.
bool draws_over(std::string_view bytes, bool is_at_column_zero) {
  if (bytes.empty()) return false;
  if (bytes.front() == '\r') return bytes.size() == 1 || bytes[1] != '\n';
  const std::size_t end = bytes.find_first_of("\r\n");
  if (end == std::string_view::npos || bytes[end] == '\n') return false;
  return is_at_column_zero && (end + 1 == bytes.size() || bytes[end + 1] != '\n');
}

// Up to and including the last '\n'.
std::size_t whole_lines_bytes(std::string_view bytes) {
  const void* last = bytes.empty() ? nullptr : memrchr(bytes.data(), '\n', bytes.size());
  return last == nullptr
             ? 0
             : static_cast<std::size_t>(static_cast<const char*>(last) - bytes.data()) + 1;
}

}  // namespace

void LineQueue::consume(std::size_t count) {
  assert(count <= size_bytes());
  consumed_bytes_ += count;
  if (consumed_bytes_ == bytes_.size()) {
    bytes_.clear();
    if (bytes_.capacity() > kWorthReleasingBytes) bytes_.shrink_to_fit();
    consumed_bytes_ = 0;
  } else if (consumed_bytes_ > bytes_.size() / 2) {
    bytes_.erase(0, consumed_bytes_);
    consumed_bytes_ = 0;
  }
}

std::string LineQueue::take_all() {
  std::string all = std::exchange(bytes_, {});
  all.erase(0, std::exchange(consumed_bytes_, 0));
  return all;
}

void LineQueue::clear() {
  bytes_ = std::string();
  consumed_bytes_ = 0;
  open_stream_ = 0;
  is_at_column_zero_ = true;
}

void LineQueue::end_line() {
  if (open_stream_ != 0) bytes_.push_back('\n');
  open_stream_ = 0;
  is_at_column_zero_ = true;
}

LineBuffer::LineBuffer(std::uint64_t stream, std::string label, std::size_t longest_held_bytes)
    : stream_(stream), label_(std::move(label)), longest_held_bytes_(longest_held_bytes) {
  assert(stream != 0);
}

void LineBuffer::take(std::string_view bytes, LineQueue& queue) {
  notice_interruption(queue);
  const std::size_t whole_bytes = whole_lines_bytes(bytes);
  if (whole_bytes > 0) {
    const std::string head = std::exchange(held_, {});
    held_has_return_ = false;
    pass_on(head, bytes.substr(0, whole_bytes), queue);
    bytes.remove_prefix(whole_bytes);
  }
  if (bytes.empty()) return;
  if (!held_has_return_) held_has_return_ = bytes.find('\r') != std::string_view::npos;
  if (is_open_ || held_has_return_ || held_.size() + bytes.size() > longest_held_bytes_) {
    const std::string head = std::exchange(held_, {});
    held_has_return_ = false;
    pass_on(head, bytes, queue);
  } else {
    held_.append(bytes);
  }
}

void LineBuffer::end_of_stream(LineQueue& queue) {
  notice_interruption(queue);
  if (!held_.empty()) pass_on(std::exchange(held_, {}), {}, queue);
  if (is_open_ && !label_.empty()) queue.end_line();
  if (is_open_) queue.open_is_bar_ = false;  // its last state stays visible
  is_open_ = false;
}

// Another stream has ended this open line: the text continues on a new line.
void LineBuffer::notice_interruption(const LineQueue& queue) {
  if (!is_open_ || queue.open_stream_ == stream_) return;
  is_open_ = false;
  was_interrupted_ = true;
  needs_label_ = true;
}

// `text`: the following text, not empty; may become empty.
void LineBuffer::begin_turn(std::string_view& text, LineQueue& queue) {
  if (std::exchange(was_interrupted_, false)) {
    if (text.front() == '\n') text.remove_prefix(1);
    line_has_label_ = false;
    if (text.empty()) return;
  }
  if (queue.open_stream_ == 0 || queue.open_stream_ == stream_) return;
  if (!queue.open_is_bar_ || !draws_over(text, queue.is_at_column_zero_)) queue.end_line();
}

// `head`: held text; `tail`: the following text. One of them may be empty. Together they either end
// with '\n' or contain none.
void LineBuffer::pass_on(std::string_view head, std::string_view tail, LineQueue& queue) {
  begin_turn(head.empty() ? tail : head, queue);
  if (head.empty() && tail.empty()) return;
  append(head, queue);
  append(tail, queue);
  const char last = (tail.empty() ? head : tail).back();
  const auto has_return = [](std::string_view text) { return text.find('\r') != text.npos; };
  queue.open_is_bar_ =
      last != '\n' && ((is_open_ && queue.open_is_bar_) || has_return(head) || has_return(tail));
  queue.is_at_column_zero_ = last == '\n' || last == '\r';
  is_open_ = last != '\n';
  queue.open_stream_ = is_open_ ? stream_ : 0;
}

void LineBuffer::append(std::string_view bytes, LineQueue& queue) {
  if (label_.empty())
    queue.bytes_.append(bytes);
  else
    append_labeled(bytes, queue.bytes_);
}

// The result depends only on the stream's bytes, not on how they are split.
void LineBuffer::append_labeled(std::string_view bytes, std::string& out) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  const auto find = [end](const char* from, char wanted) {
    const void* found =
        from == end ? nullptr : std::memchr(from, wanted, static_cast<std::size_t>(end - from));
    return found == nullptr ? end : static_cast<const char*>(found);
  };
  const char* next_return = find(at, '\r');
  while (at != end) {
    const bool only_ends_line = *at == '\r' || (*at == '\n' && line_has_label_);
    if (needs_label_ && !only_ends_line) {
      out.append(label_);
      needs_label_ = false;
      line_has_label_ = true;
    }
    if (next_return < at) next_return = find(at, '\r');
    const char* stop = std::min(find(at, '\n'), next_return);
    if (stop != end) {
      needs_label_ = true;
      if (*stop == '\n') line_has_label_ = false;
      ++stop;
    }
    out.append(at, static_cast<std::size_t>(stop - at));
    at = stop;
  }
}

}  // namespace drun::agent

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
