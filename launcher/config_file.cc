#include "launcher/config_file.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>

// The library takes some of what is no TOML, such as "[!]", for its own fault.
[[noreturn]] static void refuse_toml() {
  throw std::logic_error("something is where nothing like it can be");
}
#define TOML_ASSERT(expected) ((expected) ? void() : refuse_toml())
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace drun {
namespace {

constexpr std::size_t kMostConfigBytes = std::size_t{1} << 20;

Error error_at(int line, const std::string& reason) {
  return Error{ErrorCode::Usage, std::to_string(line) + ": " + reason};
}

int line_of(const toml::source_region& source) { return static_cast<int>(source.begin.line); }

std::string text_of(double value) {
  char text[32];
  const auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  return {text, end};
}

// Absent: a date, or something that holds values of its own.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return text;
  if (const auto number = node.value_exact<std::int64_t>()) return std::to_string(*number);
  if (const auto number = node.value_exact<double>()) return text_of(*number);
  if (const auto is_on = node.value_exact<bool>()) return *is_on ? "true" : "false";
  return std::nullopt;
}

Result<ConfigEntry> entry_of(std::string_view name, const toml::node& node) {
  ConfigEntry entry{std::string(name), {}, line_of(node.source())};
  if (node.is_table())
    return error_at(entry.line, "\"" + entry.name +
                                    "\" is no option; write NAME = VALUE lines without sections, "
                                    "with the names that --help shows");
  const auto add = [&entry](const toml::node& value) {
    std::optional<std::string> text = text_of(value);
    if (text) entry.values.push_back(*std::move(text));
    return text.has_value();
  };
  bool is_taken = true;
  if (const toml::array* array = node.as_array())
    for (const toml::node& value : *array) is_taken = add(value) && is_taken;
  else
    is_taken = add(node);
  if (!is_taken)
    return error_at(entry.line, entry.name +
                                    ": expected a string in quotes, a number, true or false, or a "
                                    "list of such");
  return entry;
}

Result<toml::table> table_of(std::string_view text) {
  const auto refused = [](std::string place, std::string_view reason) {
    return Error{ErrorCode::Usage,
                 place + " no TOML: " + std::string(reason) +
                     "; write NAME = VALUE lines, with quotes around what is no number: "
                     "nnodes = \"1:4\""};
  };
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return refused(std::to_string(line_of(error.source())) + ":", error.description());
  } catch (const std::logic_error& error) {
    return refused("", error.what());
  }
}

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text) {
  const Result<toml::table> table = table_of(text);
  if (!table) return table.error();
  std::vector<ConfigEntry> entries;
  for (const auto& [name, node] : *table) {
    Result<ConfigEntry> entry = entry_of(name.str(), node);
    if (!entry) return entry.error();
    entries.push_back(*std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return entries;
}

Result<std::vector<ConfigEntry>> read_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostConfigBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostConfigBytes)
    return Error{ErrorCode::Usage, "--config=" + path + ": over 1 MiB; that is no file of options"};
  if (!file.eof())
    return Error{
        ErrorCode::Usage,
        "--config=" + path + ": no such file, or not readable; write the path of a TOML file"};
  Result<std::vector<ConfigEntry>> entries = parse_config(text);
  if (!entries) return Error{ErrorCode::Usage, path + ":" + entries.error().message};
  return entries;
}

}  // namespace drun
