#include "agent/output/label.h"

#include <optional>

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

// What stands at text[0] == '$'; absent: a dollar that refers to nothing.
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
