#include "rendezvous/base/text.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace drun {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

void append_base64(std::string_view bytes, std::string& out) {
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view group = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8U | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0U);
    std::array<char, 4> digits{};
    for (std::size_t i = 0; i < digits.size(); ++i)
      digits[i] = i <= group.size() ? kDigits[bits >> (18U - 6U * i) & 63U] : '=';
    out.append(digits.data(), digits.size());
  }
}

std::string base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  append_base64(bytes, text);
  return text;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::string_view group = text.substr(at, 4);
    while (group.ends_with('=') && group.size() > 2) group.remove_suffix(1);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t digit = i < group.size() ? kDigits.find(group[i]) : 0;
      if (digit == kDigits.npos) return std::nullopt;
      bits = bits << 6U | static_cast<std::uint32_t>(digit);
    }
    for (std::size_t i = 0; i + 1 < group.size(); ++i)
      bytes.push_back(static_cast<char>(bits >> (16U - 8U * i) & 0xFFU));
  }
  // Accepts only canonical text: rejects missing, misplaced or nonzero padding.
  if (base64(bytes) != text) return std::nullopt;
  return bytes;
}

std::string roff_text(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    const bool begins_line = roff.empty() || roff.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\')
      roff += "\\e";
    else if (c == '-')
      roff += "\\-";
    else if (c == '\'')
      roff += "\\(aq";
    else if (c == '^')
      roff += "\\(ha";
    else if (c == '`')
      roff += "\\(ga";
    else if (c == '~')
      roff += "\\(ti";
    else
      roff += c;
  }
  return roff;
}

}  // namespace drun
