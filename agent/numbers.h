// core. Numbers in text that other programs wrote.   Thread: any.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace drun::agent {

// The number that `text` begins with. Absent: there is none, or it is out of range.
template <typename Number>
std::optional<Number> leading_number(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Absent: `text` is anything else than a number.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

}  // namespace drun::agent
