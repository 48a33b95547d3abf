#include "launcher/engines/number_list.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "launcher/engines/reading.h"
#include "rendezvous/text_parts.h"

namespace drun::engines {
namespace {

using Span = std::pair<std::int64_t, std::int64_t>;  // first and last

bool is_name(std::string_view entry) {
  return std::any_of(entry.begin(), entry.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  });
}

std::optional<Span> span_of(std::string_view entry) {
  const std::size_t dash = entry.find('-');
  const auto first = whole_number(entry.substr(0, dash));
  const auto last = dash == entry.npos ? first : whole_number(entry.substr(dash + 1));
  if (!first || !last || *first > *last || *last > kMostCount) return std::nullopt;
  return Span{*first, *last};
}

std::int64_t numbers_in(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  std::int64_t count = 0;
  std::int64_t next = 0;
  for (const auto& [first, last] : spans) {
    count += std::max<std::int64_t>(last - std::max(first, next) + 1, 0);
    next = std::max(next, last + 1);
  }
  return count;
}

}  // namespace

bool is_list(std::string_view text) { return text.find_first_of(",-") != text.npos; }

std::optional<int> size_of_list(std::string_view text) {
  std::vector<Span> spans;
  std::set<std::string_view> names;
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = trimmed(text.substr(0, comma));
    if (is_name(entry)) {
      names.insert(entry);
    } else if (const auto span = span_of(entry)) {
      spans.push_back(*span);
    } else {
      return std::nullopt;
    }
    if (comma == text.npos) break;
    text.remove_prefix(comma + 1);
  }
  const std::int64_t count = numbers_in(std::move(spans)) + static_cast<std::int64_t>(names.size());
  return count > kMostCount ? std::nullopt : std::optional(static_cast<int>(count));
}

}  // namespace drun::engines
