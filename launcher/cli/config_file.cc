#include "launcher/cli/config_file.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun {
namespace {

constexpr std::string_view kSpace = " \t";
constexpr std::string_view kDigits = "0123456789";
constexpr const char* kLines = "write NAME = VALUE lines; --help-all lists the names";
constexpr const char* kQuotes = "write text in quotes";

bool is_name_part(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

bool is_control(char c) { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f; }

std::optional<std::uint64_t> number_in_base(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// nullopt for an invalid character or NUL, which would terminate C strings.
std::optional<std::string> utf8_of(std::string_view hex) {
  const auto code = number_in_base(hex, 16);
  if (!code || *code == 0 || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
    return std::nullopt;
  if (*code < 0x80) return std::string(1, static_cast<char>(*code));
  const int more = *code < 0x800 ? 1 : *code < 0x10000 ? 2 : 3;
  const std::uint32_t lead = *code < 0x800 ? 0xc0 : *code < 0x10000 ? 0xe0 : 0xf0;
  std::string text(1, static_cast<char>(lead | *code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (*code >> (6 * i) & 0x3f));
  return text;
}

// "0x1_0": "16"; "1_000": "1000"; "true". nullopt for anything else.
std::optional<std::string> plain_value(std::string_view word) {
  if (word == "true" || word == "false") return std::string(word);
  if (word.starts_with('_') || word.ends_with('_') || word.find("__") != word.npos)
    return std::nullopt;
  std::string text(word);
  std::erase(text, '_');
  for (const auto& [prefix, base] : {std::pair("0x", 16), {"0o", 8}, {"0b", 2}}) {
    if (!text.starts_with(prefix)) continue;
    const auto number = number_in_base(std::string_view(text).substr(2), base);
    return number ? std::optional(std::to_string(*number)) : std::nullopt;
  }
  // from_chars accepts "01", ".5", "5.", "1.e3" and "inf", which TOML does not.
  const auto is_digit = [&text](std::size_t at) {
    return at < text.size() && kDigits.find(text[at]) != kDigits.npos;
  };
  const std::size_t first = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  const std::size_t dot = text.find('.');
  if (!is_digit(first) || (text[first] == '0' && is_digit(first + 1))) return std::nullopt;
  if (dot != text.npos && !is_digit(dot + 1)) return std::nullopt;
  if (text.front() == '+') text.erase(0, 1);
  return whole_number<double>(text) ? std::optional(text) : std::nullopt;
}

class ConfigReader {
 public:
  explicit ConfigReader(std::string_view text) : rest_(text) {}

  Result<std::vector<ConfigEntry>> read() {
    std::vector<ConfigEntry> entries;
    while (pass_lines(), !rest_.empty()) {
      Result<ConfigEntry> entry = read_entry();
      if (!entry) return entry.error();
      entries.push_back(*std::move(entry));
    }
    return entries;
  }

 private:
  Error failed(const std::string& reason) const {
    return Error{ErrorCode::Usage, std::to_string(line_) + ": " + reason};
  }
  char next() const { return rest_.empty() ? '\n' : rest_.front(); }
  bool take(char wanted) {
    if (rest_.empty() || rest_.front() != wanted) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view take_bytes(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void pass_space() { take_bytes(std::min(rest_.find_first_not_of(kSpace), rest_.size())); }

  // Skips spaces and a comment up to the end of the line. Returns false if anything else follows.
  bool pass_to_end() {
    pass_space();
    if (next() == '#') take_bytes(std::min(rest_.find('\n'), rest_.size()));
    if (rest_.starts_with("\r\n")) take_bytes(1);
    return next() == '\n';
  }
  // Skips empty lines and comment lines.
  void pass_lines() {
    while (pass_to_end() && take('\n')) ++line_;
  }

  Result<ConfigEntry> read_entry() {
    const int line = line_;
    if (next() == '[') return failed(std::string("sections are not supported; ") + kLines);
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), is_name_part);
    const auto length = static_cast<std::size_t>(end - rest_.begin());
    ConfigEntry entry{std::string(take_bytes(length)), {}, line, false};
    pass_space();
    if (length == 0 || !take('=')) return failed(std::string("expected NAME = VALUE; ") + kLines);
    pass_space();
    entry.is_list = take('[');
    Result<void> read = entry.is_list ? read_list(entry.values) : read_value(entry.values);
    if (read && !pass_to_end())
      read = failed("unexpected text after the value; " + std::string(kQuotes));
    if (!read) return named(read.error(), entry.name);
    take('\n');
    ++line_;
    return entry;
  }
  // "3: nnodes: reason".
  static Error named(Error error, const std::string& name) {
    error.message.insert(error.message.find(' ') + 1, name + ": ");
    return error;
  }

  Result<void> read_list(std::vector<std::string>& values) {
    for (bool may_follow = true;;) {
      pass_lines();
      if (rest_.empty()) return failed("the list has no closing ]");
      if (take(']')) return {};
      if (!may_follow) return failed("missing comma in a list");
      if (Result<void> read = read_value(values); !read) return read;
      pass_lines();
      may_follow = take(',');
    }
  }

  Result<void> read_value(std::vector<std::string>& values) {
    if (rest_.starts_with("\"\"\"") || rest_.starts_with("'''"))
      return failed("multi-line strings are not supported; write the string on one line");
    if (next() == '"') return read_string(values);
    if (next() == '\'') return read_literal(values);
    const std::string_view word =
        take_bytes(std::min(rest_.find_first_of(" \t\r\n,]#"), rest_.size()));
    std::optional<std::string> value = plain_value(word);
    if (!value)
      return failed((word.empty() ? "no value" : "this is not a value") + std::string("; ") +
                    kQuotes);
    values.push_back(*std::move(value));
    return {};
  }

  Error unending() const { return failed("the string has no closing quote on this line"); }

  Result<void> read_literal(std::vector<std::string>& values) {
    take_bytes(1);
    const std::string_view text = take_bytes(std::min(rest_.find_first_of("'\n"), rest_.size()));
    if (!take('\'')) return unending();
    if (std::any_of(text.begin(), text.end(), is_control))
      return failed("control character in a string");
    values.emplace_back(text);
    return {};
  }

  Result<void> read_string(std::vector<std::string>& values) {
    take_bytes(1);
    std::string text;
    while (!take('"')) {
      if (next() == '\n') return unending();
      if (is_control(next())) return failed("control character in a string");
      if (!take('\\')) {
        text += take_bytes(1);
        continue;
      }
      const std::optional<std::string> meant = read_escape();
      if (!meant) return failed("unknown escape; write \\\\ for a backslash");
      text += *meant;
    }
    values.push_back(std::move(text));
    return {};
  }

  // Parses the part after a backslash.
  std::optional<std::string> read_escape() {
    const char kind = next();
    if (kind == '\n') return std::nullopt;
    take_bytes(1);
    if (kind == 'u') return utf8_of(take_bytes(4));
    if (kind == 'U') return utf8_of(take_bytes(8));
    constexpr std::string_view kKinds = "btnfr\"\\";
    constexpr std::string_view kMeant = "\b\t\n\f\r\"\\";
    const std::size_t found = kKinds.find(kind);
    if (found == kKinds.npos) return std::nullopt;
    return std::string(1, kMeant[found]);
  }

  std::string_view rest_;
  int line_ = 1;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text) {
  return ConfigReader(text).read();
}

}  // namespace drun
