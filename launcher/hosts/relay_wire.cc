#include "launcher/hosts/relay_wire.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/hosts/json_fields.h"

namespace drun::hosts {
namespace {

using Deed = RelayCommand::Deed;

constexpr std::size_t kMostHostNumber = std::size_t{1} << 20;
constexpr std::size_t kMostExitCode = 255;
constexpr std::size_t kMostNonceBytes = 64;

struct Word {
  Deed deed;
  std::string_view text;
  bool has_bytes;
};
constexpr std::array<Word, 4> kWords{Word{Deed::Start, "start ", true}, Word{Deed::To, "to ", true},
                                     Word{Deed::Eof, "eof ", false},
                                     Word{Deed::Kill, "kill ", false}};

std::optional<std::size_t> take_number(std::string_view& text, std::size_t most) {
  std::size_t number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || number > most) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace

std::string relay_line(std::string_view nonce) {
  return "relay " + std::to_string(kProtocol) + " " + std::string(nonce) + "\n";
}

std::optional<RelayLine> parse_relay_line(std::string_view line) {
  if (!line.starts_with("relay ")) return std::nullopt;
  line.remove_prefix(6);
  const auto protocol = take_number(line, 1000);
  if (!protocol || !(line.empty() || line.starts_with(' '))) return std::nullopt;
  line.remove_prefix(line.empty() ? 0 : 1);
  if (line.size() > kMostNonceBytes || line.find(' ') != line.npos) return std::nullopt;
  return RelayLine{.protocol = static_cast<int>(*protocol), .nonce = std::string(line)};
}

std::string to_line(const RelayCommand& command) {
  for (const Word& word : kWords) {
    if (word.deed != command.deed) continue;
    std::string line = std::string(word.text) + std::to_string(command.host);
    return line + (word.has_bytes ? " " + std::to_string(command.bytes) : "") + "\n";
  }
  return {};
}

std::optional<RelayCommand> parse_relay_command(std::string_view line) {
  for (const Word& word : kWords) {
    if (!line.starts_with(word.text)) continue;
    line.remove_prefix(word.text.size());
    const auto host = take_number(line, kMostHostNumber);
    std::optional<std::size_t> bytes = 0;
    if (host && word.has_bytes) {
      if (!line.starts_with(' ')) return std::nullopt;
      line.remove_prefix(1);
      bytes = take_number(line, 2 * kMostLineBytes);
    }
    if (!host || !bytes || !line.empty()) return std::nullopt;
    return RelayCommand{.deed = word.deed, .host = *host, .bytes = *bytes};
  }
  return std::nullopt;
}

std::string to_text(const RelayStart& start) {
  const Json json = {{"argv", json_texts(start.argv)},
                     {"name", to_characters(start.name)},
                     {"first_line", to_characters(start.first_line)},
                     {"nonce", to_characters(start.nonce)}};
  return json.dump();
}

Result<RelayStart> parse_relay_start(std::string_view text) {
  JsonFields fields(text, 2 * kMostLineBytes);
  RelayStart start;
  start.argv = fields.words("argv");
  start.name = fields.text("name");
  start.first_line = fields.text("first_line");
  start.nonce = fields.text("nonce");
  return fields.take(std::move(start), "what a relay is to start");
}

std::string ended_text(int code) { return std::to_string(code); }

std::optional<int> parse_ended(std::string_view text) {
  const auto code = take_number(text, kMostExitCode);
  if (!code || !text.empty()) return std::nullopt;
  return static_cast<int>(*code);
}

}  // namespace drun::hosts
