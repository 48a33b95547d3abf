// core. Helpers for text: trim and split, numbers, durations, maps with text keys, base64, manual
// pages.
#pragma once

#include <charconv>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <vector>

namespace drun {

constexpr std::string_view kBlanks = " \t\r\n";

// Returns a view of `text`, which must outlive it.
inline std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Returns views of the parts: one more than there are separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The number that `text` begins with, without blanks or '+' before it. Absent: there is none, or it
// is out of range.
template <typename Number>
std::optional<Number> leading_number(std::string_view text, int base = 10) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Absent: `text` is anything else than a number that fits.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

}  // namespace drun

namespace drun::rendezvous {

// "13m20s", "10s", "1h5m", "300ms" below a second.
inline std::string duration_text(std::chrono::milliseconds duration) {
  if (duration < std::chrono::seconds(1)) return std::to_string(duration.count()) + "ms";
  const long seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
  const auto part = [](long count, const char* unit) {
    return count == 0 ? std::string() : std::to_string(count) + unit;
  };
  if (seconds >= 3600) return part(seconds / 3600, "h") + part(seconds / 60 % 60, "m");
  return part(seconds / 60, "m") + part(seconds % 60, "s");
}

}  // namespace drun::rendezvous

// A hash map with text keys. A lookup with a string_view does not copy it.

namespace drun {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

template <typename T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

// --- Base64 (RFC 4648), with padding

void append_base64(std::string_view bytes, std::string& out);
std::string base64(std::string_view bytes);

// Returns nullopt unless `text` is exactly what `base64` returns.
std::optional<std::string> bytes_of_base64(std::string_view text);

// --- Manual pages

// Escapes `text` for a manual page, so that roff finds no request or escape in it.
std::string roff_text(std::string_view text);

}  // namespace drun
