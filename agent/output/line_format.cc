#include "agent/output/line_format.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "agent/wall_time.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
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
  if (held_.size() > kLongestJsonTextBytes) put(std::exchange(held_, {}), true, out);
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

}  // namespace drun::agent

namespace drun::agent {
namespace {

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

std::optional<std::string> value_of(std::string_view name, const LabelValues& values) {
  if (name == "role_name") return values.role_name;
  if (name == "local_rank") return std::to_string(values.local_rank);
  if (name == "rank") return std::to_string(values.rank);
  if (name == "node_rank") return std::to_string(values.node_rank);
  if (name == "host" || name == "hostname") return values.host;
  return std::nullopt;
}

struct Reference {
  std::string_view name;
  std::size_t size_bytes = 0;  // with the dollar and the braces
};

// The reference at text[0] == '$'; absent: a plain dollar sign.
std::optional<Reference> reference_at(std::string_view text) {
  const bool has_brace = text.size() > 1 && text[1] == '{';
  const std::size_t begin = has_brace ? 2 : 1;
  if (begin >= text.size() || !begins_name(text[begin])) return std::nullopt;
  std::size_t end = begin + 1;
  while (end < text.size() && continues_name(text[end])) ++end;
  if (has_brace && (end == text.size() || text[end] != '}')) return std::nullopt;
  return Reference{text.substr(begin, end - begin), has_brace ? end + 1 : end};
}

}  // namespace

std::string fill_label(std::string_view label_template, const LabelValues& values) {
  std::string label;
  std::string_view left = label_template;
  while (!left.empty()) {
    const std::size_t dollar = left.find('$');
    label.append(left.substr(0, dollar));
    if (dollar == std::string_view::npos) break;
    left.remove_prefix(dollar);
    if (left.starts_with("$$")) {
      label.push_back('$');
      left.remove_prefix(2);
      continue;
    }
    const std::optional<Reference> reference = reference_at(left);
    const std::size_t taken = reference ? reference->size_bytes : 1;
    const std::optional<std::string> value =
        reference ? value_of(reference->name, values) : std::nullopt;
    if (value)
      label.append(*value);
    else
      label.append(left.substr(0, taken));
    left.remove_prefix(taken);
  }
  return label;
}

}  // namespace drun::agent

namespace drun::agent {

std::string label_of(const OutputSpec& spec, const LineOrigin& origin) {
  return fill_label(spec.label_template, {.role_name = origin.role,
                                          .local_rank = origin.local_rank,
                                          .rank = origin.rank,
                                          .node_rank = origin.node_rank,
                                          .host = origin.host});
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
