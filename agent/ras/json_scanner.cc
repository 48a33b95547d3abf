#include "agent/ras/json_scanner.h"

#include <cctype>
#include <utility>

namespace drun::agent::ras {
namespace {

constexpr std::size_t kMostLevels = 32;
constexpr std::size_t kMostText = 256;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '+' || c == '.';
}

}  // namespace

bool JsonScanner::take(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size() && !is_broken_; ++i) is_broken_ = !step(bytes[i]);
  return !is_broken_;
}

bool JsonScanner::step(char c) {
  switch (in_) {
    case In::Between:
      return step_between(c);
    case In::String:
      return step_string(c);
    case In::Escape:
      // Hosts, hashes and kinds have none: the character itself will do.
      in_ = In::String;
      text_ += c;
      return text_.size() <= kMostText;
    case In::Word:
      if (!is_of_word(c)) return end_text(false) && step_between(c);
      text_ += c;
      return text_.size() <= kMostText;
  }
  return false;
}

bool JsonScanner::step_between(char c) {
  if (is_blank(c)) return true;
  if (is_complete_) return false;
  if (c == '{' || c == '[') return open(c == '[');
  if (are_lists_.empty()) return false;
  if (c == '}' || c == ']') return close(c == ']');
  if (c == ',' || c == ':') return true;
  in_ = c == '"' ? In::String : In::Word;
  text_.clear();
  if (c == '"') return true;
  text_ += c;
  return is_of_word(c);
}

bool JsonScanner::step_string(char c) {
  if (c == '\\') {
    in_ = In::Escape;
    return true;
  }
  if (c == '"') return end_text(true);
  text_ += c;
  return text_.size() <= kMostText;
}

bool JsonScanner::open(bool is_list) {
  const bool needs_key = !are_lists_.empty() && !are_lists_.back();
  if (are_lists_.size() >= kMostLevels || needs_key != has_key_) return false;
  listener_.on_open(has_key_ ? key_ : "", is_list);
  has_key_ = false;
  are_lists_.push_back(is_list);
  return true;
}

bool JsonScanner::close(bool is_list) {
  if (are_lists_.back() != is_list || has_key_) return false;
  are_lists_.pop_back();
  listener_.on_close();
  is_complete_ = are_lists_.empty();
  return true;
}

bool JsonScanner::end_text(bool is_string) {
  in_ = In::Between;
  if (are_lists_.back()) {
    listener_.on_value("", text_);
  } else if (std::exchange(has_key_, false)) {
    listener_.on_value(key_, text_);
  } else {
    key_ = text_;
    has_key_ = true;
    return is_string;
  }
  return true;
}

}  // namespace drun::agent::ras
