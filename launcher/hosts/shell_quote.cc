#include "launcher/hosts/shell_quote.h"

#include <algorithm>

namespace drun::hosts {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:,@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  const bool is_option = text.starts_with('-');  // --name=value; elsewhere = may be an assignment
  const auto is_harmless = [&](char c) { return is_plain(c) || (c == '=' && is_option); };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_harmless)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace drun::hosts
