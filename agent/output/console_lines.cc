#include "agent/output/console_lines.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/string_template.h"
#include "agent/wall_time.h"
#include "rendezvous/base/bytes.h"
#include "rendezvous/base/text.h"

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

void LineBuffer::show_held(LineQueue& queue) {
  notice_interruption(queue);
  if (!held_.empty()) pass_on(std::exchange(held_, {}), {}, queue);
}

void LineBuffer::end_of_stream(LineQueue& queue) {
  show_held(queue);
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

std::string_view whole_lines_within(std::string_view text, std::size_t most_bytes) {
  const std::string_view piece = text.substr(0, most_bytes);
  if (piece.size() == text.size()) return piece;
  const std::size_t end = piece.rfind('\n');
  return end == piece.npos ? piece : piece.substr(0, end + 1);
}

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

namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101U;
constexpr std::uint64_t kHighBits = 0x8080808080808080U;

constexpr std::uint64_t zero_bytes(std::uint64_t word) {
  return (word - kOnes) & ~word & kHighBits;
}

// Whether any of eight bytes needs special treatment in a JSON string: controls, quotes,
// backslashes, bytes beyond ASCII. May report false positives; the caller checks again.
constexpr bool has_special(std::uint64_t word) {
  const std::uint64_t controls = (word - kOnes * 0x20) & ~word;
  return ((word | controls) & kHighBits) != 0 || zero_bytes(word ^ (kOnes * '"')) != 0 ||
         zero_bytes(word ^ (kOnes * '\\')) != 0;
}

constexpr bool is_plain(char c) { return c >= 0x20 && c != '"' && c != '\\'; }

// The number of leading bytes that need no escaping.
std::size_t plain_bytes(std::string_view text) {
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof(word));
    if (has_special(word)) break;
  }
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

// The size of the leading non-ASCII character; 0: invalid UTF-8.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t at) {
    return at < text.size() ? static_cast<unsigned>(static_cast<unsigned char>(text[at])) : 0U;
  };
  const auto follows = [&byte](std::size_t at) { return (byte(at) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool is_longer_than_needed = first == 0xE0 && byte(1) < 0xA0;
    const bool is_surrogate = first == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !is_longer_than_needed && !is_surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool is_longer_than_needed = first == 0xF0 && byte(1) < 0x90;
    const bool is_beyond = first == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !is_longer_than_needed && !is_beyond ? 4 : 0;
  }
  return 0;
}

void append_escaped(char c, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(c);
  switch (c) {
    case '"':
      out.append("\\\"");
      return;
    case '\\':
      out.append("\\\\");
      return;
    case '\t':
      out.append("\\t");
      return;
    case '\r':
      out.append("\\r");
      return;
    case '\n':
      out.append("\\n");
      return;
    default:
      out.append("\\u00");
      out.push_back(kDigits[code >> 4U]);
      out.push_back(kDigits[code & 15U]);
  }
}

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  append_json_text(text, quoted);
  return quoted + "\"";
}

}  // namespace

bool append_json_text(std::string_view text, std::string& out) {
  bool is_exact = true;
  while (!text.empty()) {
    std::size_t taken = plain_bytes(text);
    out.append(text.substr(0, taken));
    text.remove_prefix(taken);
    if (text.empty()) break;
    const bool is_ascii = static_cast<unsigned char>(text.front()) < 0x80;
    taken = is_ascii ? 0 : character_bytes(text);
    if (taken > 0) {
      out.append(text.substr(0, taken));
    } else if (is_ascii) {
      append_escaped(text.front(), out);
    } else {
      out.append("\xEF\xBF\xBD");
      is_exact = false;
    }
    text.remove_prefix(taken > 0 ? taken : 1);
  }
  return is_exact;
}

JsonLines::JsonLines(const LineOrigin& origin)
    : fixed_(R"(","node_rank":)" + std::to_string(origin.node_rank) + R"(,"host":)" +
             json_string(origin.host) + R"(,"rank":)" + std::to_string(origin.rank) +
             R"(,"local_rank":)" + std::to_string(origin.local_rank) + R"(,"role":)" +
             json_string(origin.role) + R"(,"round":)" + std::to_string(origin.round) +
             R"(,"stream":)" + (origin.is_stderr ? R"("stderr")" : R"("stdout")") +
             R"(,"text":")") {}

void JsonLines::take(std::string_view bytes, WallTime read_at, std::string& out) {
  head_ = R"({"time":")" + utc_time(read_at) + fixed_;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (end == bytes.npos) break;
    if (held_.empty())
      put(bytes.substr(0, end), false, out);
    else
      put(std::exchange(held_, {}).append(bytes.substr(0, end)), false, out);
    bytes.remove_prefix(end + 1);
  }
  held_.append(bytes);
  // At least one byte stays, so that the last object of a line is never a partial one.
  while (held_.size() > kLongestJsonTextBytes) {
    const std::string_view piece = rendezvous::cut_text(held_, kLongestJsonTextBytes);
    put(piece, true, out);
    held_.erase(0, piece.size());
  }
}

void JsonLines::end_of_stream(WallTime read_at, std::string& out) {
  if (held_.empty()) return;
  take("\n", read_at, out);
}

void JsonLines::put(std::string_view line, bool is_partial, std::string& out) const {
  out.append(head_);
  const bool is_exact = append_json_text(line, out);
  out.push_back('"');
  if (!is_exact) {
    out.append(R"(,"base64":")");
    append_base64(line, out);
    out.push_back('"');
  }
  if (is_partial) out.append(R"(,"partial":true)");
  out.append("}\n");
}

namespace {

std::optional<std::string> value_of(std::string_view name, const LineOrigin& origin) {
  if (name == "role_name") return origin.role;
  if (name == "local_rank") return std::to_string(origin.local_rank);
  if (name == "rank") return std::to_string(origin.rank);
  if (name == "node_rank") return std::to_string(origin.node_rank);
  if (name == "host" || name == "hostname") return origin.host;
  return std::nullopt;
}

}  // namespace

std::string fill_label(std::string_view label_template, const LineOrigin& origin) {
  return substitute(label_template, TemplateSyntax::Python,
                    [&origin](std::string_view name) { return value_of(name, origin); });
}

std::string label_of(const OutputSpec& spec, const LineOrigin& origin) {
  return fill_label(spec.label_template, origin);
}

LineFormat form_of(const OutputSpec& spec, LineOrigin origin, bool is_labeled) {
  LineFormat form{.is_json = spec.mode == OutputMode::Json,
                  .has_time = spec.has_timestamps,
                  .label = is_labeled ? label_of(spec, origin) : "",
                  .origin = {}};
  form.origin = std::move(origin);
  return form;
}

FormattedLines::FormattedLines(std::uint64_t stream, LineFormat form,
                               std::size_t longest_held_bytes)
    : form_(std::move(form)), lines_(stream, form_.is_json ? "" : form_.label, longest_held_bytes) {
  if (form_.is_json) json_.emplace(form_.origin);
}

void FormattedLines::stamp(WallTime read_at) {
  if (form_.has_time && !form_.is_json) lines_.set_label(utc_time(read_at) + " " + form_.label);
}

void FormattedLines::take(std::string_view bytes, WallTime read_at, LineQueue& queue) {
  stamp(read_at);
  if (!json_) return lines_.take(bytes, queue);
  objects_.clear();
  json_->take(bytes, read_at, objects_);
  if (!objects_.empty()) lines_.take(objects_, queue);
}

void FormattedLines::show_held(WallTime read_at, LineQueue& queue) {
  if (json_ || lines_.held_bytes() == 0) return;
  stamp(read_at);
  lines_.show_held(queue);
}

void FormattedLines::end_of_stream(WallTime read_at, LineQueue& queue) {
  stamp(read_at);
  if (json_) {
    objects_.clear();
    json_->end_of_stream(read_at, objects_);
    if (!objects_.empty()) lines_.take(objects_, queue);
  }
  lines_.end_of_stream(queue);
}

}  // namespace drun::agent
