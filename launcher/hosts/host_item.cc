#include "launcher/hosts/host_item.h"

#include <algorithm>
#include <charconv>

#include "launcher/engines/host_list.h"

namespace drun::hosts {
namespace {

Error bad(std::string_view item, const std::string& reason) {
  return Error{ErrorCode::Usage, "\"" + std::string(item) + "\": " + reason};
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// What ssh's destination may hold without meaning something else to it.
bool is_name(std::string_view name, std::string_view also) {
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter_or_digit(c) || also.find(c) != std::string_view::npos;
  });
}

// "[fe80::1]:2", not "[01-04]:2".
bool is_bracketed_address(std::string_view text) {
  const std::string_view inner = text.substr(0, text.find(']'));
  return text.starts_with('[') && inner.find(':') != std::string_view::npos;
}

// Of the one ':' outside of brackets. Absent: there is none; npos: there are several.
std::optional<std::size_t> colon_of(std::string_view text) {
  std::optional<std::size_t> colon;
  bool is_inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') is_inside = true;
    if (text[i] == ']') is_inside = false;
    if (text[i] != ':' || is_inside) continue;
    if (colon) return std::string_view::npos;
    colon = i;
  }
  return colon;
}

Result<HostItem> parse_address(std::string_view whole, std::string_view text) {
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return bad(whole, "a [ without its ]");
  const std::string_view rest = text.substr(end + 1);
  HostItem item{.names = {std::string(text.substr(1, end - 1))}};
  if (!is_name(item.names.front(), ":.%-_") || (!rest.empty() && !rest.starts_with(':')))
    return bad(whole, "expected an IPv6 address such as [fe80::1] or [fe80::1]:4");
  if (!rest.empty()) item.tail = rest.substr(1);
  return item;
}

Result<HostItem> parse_names(std::string_view whole, std::string_view text) {
  const std::optional<std::size_t> colon = colon_of(text);
  if (colon == std::string_view::npos)
    return bad(whole, "several colons; write an IPv6 address in brackets, as [fe80::1]:4");
  HostItem item;
  if (colon) item.tail = text.substr(*colon + 1);
  Result<std::vector<std::string>> names =
      engines::expand_host_list(text.substr(0, colon.value_or(text.npos)));
  if (!names) return with_context(names.error(), "\"" + std::string(whole) + "\"");
  item.names = *std::move(names);
  for (const std::string& name : item.names)
    if (!is_name(name, "-._")) return bad(whole, "\"" + name + "\" is not the name of a host");
  return item;
}

}  // namespace

Result<HostItem> parse_host_item(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::string_view user = at == text.npos ? std::string_view() : text.substr(0, at);
  const std::string_view rest = at == text.npos ? text : text.substr(at + 1);
  if (at != text.npos && !is_name(user, "-._+"))
    return bad(text, "expected such as user@host before the @");
  Result<HostItem> item =
      is_bracketed_address(rest) ? parse_address(text, rest) : parse_names(text, rest);
  if (item) item->user = user;
  return item;
}

std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view separators) {
  std::vector<std::string_view> parts;
  bool is_inside = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const bool is_end = i == text.size();
    if (!is_end && text[i] == '[') is_inside = true;
    if (!is_end && text[i] == ']') is_inside = false;
    if (!is_end && (is_inside || separators.find(text[i]) == separators.npos)) continue;
    if (i > begin) parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::optional<int> slot_count(std::string_view text) {
  int count = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (count < 1 || count > kMostSlots) return std::nullopt;
  return count;
}

}  // namespace drun::hosts
