// core. Lists and lines of text.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"

namespace drun {

// "a, b, c" with ", " between the parts. `text_of` makes the text of a part.
template <typename Parts, typename TextOf = std::identity>
std::string joined(const Parts& parts, std::string_view separator, TextOf text_of = {}) {
  std::string text;
  bool is_first = true;
  for (const auto& part : parts) {
    if (!std::exchange(is_first, false)) text += separator;
    text += std::invoke(text_of, part);
  }
  return text;
}

// Views of the parts, without blanks around them.
inline std::vector<std::string_view> trimmed_parts(std::string_view text, char separator) {
  std::vector<std::string_view> parts = split(text, separator);
  for (std::string_view& part : parts) part = trimmed(part);
  return parts;
}

// Views of the lines, without their ends. A line end at the end of the text begins no further line.
inline std::vector<std::string_view> lines_of(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text.empty() ? std::vector<std::string_view>() : split(text, '\n');
}

// Changes only ASCII letters.
inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return lower;
}

// Removes the first word from `text` and returns it; empty if there is none.
inline std::string_view next_word(std::string_view& text, std::string_view blanks = kBlanks) {
  text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(blanks));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace drun
