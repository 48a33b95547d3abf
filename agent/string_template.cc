#include "agent/string_template.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace drun::agent {
namespace {

bool begins_name(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool continues_name(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

struct Placeholder {
  std::string_view name{};
  std::size_t size_bytes = 1;  // with the dollar and the braces
};

// At text[0] == '$'. Without a name: a plain dollar sign.
Placeholder placeholder_at(std::string_view text, TemplateSyntax syntax) {
  const bool has_brace = text.size() > 1 && text[1] == '{';
  if (!has_brace && syntax == TemplateSyntax::BracesOnly) return {};
  const std::size_t begin = has_brace ? 2 : 1;
  if (begin >= text.size() || !begins_name(text[begin])) return {};
  const auto* const name_end = std::find_if_not(text.begin() + begin, text.end(), continues_name);
  if (has_brace && (name_end == text.end() || *name_end != '}')) return {};
  const auto end = static_cast<std::size_t>(name_end - text.begin());
  return {.name = text.substr(begin, end - begin), .size_bytes = end + (has_brace ? 1 : 0)};
}

}  // namespace

std::string substitute(
    std::string_view text, TemplateSyntax syntax,
    const std::function<std::optional<std::string>(std::string_view)>& value_of) {
  std::string filled;
  while (true) {
    const std::size_t dollar = std::min(text.find('$'), text.size());
    filled += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) return filled;
    if (syntax == TemplateSyntax::Python && text.starts_with("$$")) {
      filled += '$';
      text.remove_prefix(2);
      continue;
    }
    const Placeholder found = placeholder_at(text, syntax);
    const auto value = found.name.empty() ? std::nullopt : value_of(found.name);
    filled += value ? std::string_view(*value) : text.substr(0, found.size_bytes);
    text.remove_prefix(found.size_bytes);
  }
}

}  // namespace drun::agent
