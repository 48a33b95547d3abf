#include "launcher/remote/agent_protocol.h"

#include <nlohmann/json.hpp>

#include <array>
#include <charconv>
#include <utility>

namespace drun::hosts {

std::string to_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

std::string to_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < text.size()) {
      bytes +=
          static_cast<char>((lead & 0x03) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f));
    } else if (lead >= 0xc0) {
      bytes += '?';
    }
  }
  return bytes;
}

Json json_texts(const std::vector<std::string>& words) {
  Json array = Json::array();
  for (const std::string& word : words) array.push_back(to_characters(word));
  return array;
}

JsonFields::JsonFields(std::string_view line, std::size_t most_bytes)
    : json_(line.size() > most_bytes ? Json(Json::value_t::discarded)
                                     : Json::parse(line.begin(), line.end(), nullptr, false)) {
  if (!json_.is_object()) wrong_ = "no JSON object";
}

JsonFields::JsonFields(Json json) : json_(std::move(json)) {
  if (!json_.is_object()) wrong_ = "no JSON object";
}

std::vector<Json> JsonFields::list(const char* name) {
  const Json* found = find(name, true);
  if (found == nullptr) return {};
  if (!found->is_array()) return complain(name), std::vector<Json>();
  return std::vector<Json>(found->begin(), found->end());
}

std::string JsonFields::text(const char* name, bool is_needed) {
  const Json* found = find(name, is_needed);
  if (found == nullptr) return {};
  if (!found->is_string()) return complain(name), std::string();
  return to_bytes(found->get_ref<const std::string&>());
}

int JsonFields::number(const char* name, bool is_needed) {
  const Json* found = find(name, is_needed);
  if (found == nullptr) return 0;
  const bool is_fit = found->is_number_integer() && *found >= -1000000 && *found <= 1000000;
  if (!is_fit) return complain(name), 0;
  return found->get<int>();
}

std::vector<int> JsonFields::numbers(const char* name) {
  const Json* found = find(name, false);
  std::vector<int> numbers;
  if (found == nullptr) return numbers;
  if (!found->is_array()) return complain(name), numbers;
  for (const Json& each : *found) {
    const bool is_fit = each.is_number_integer() && each >= 0 && each <= 1000000;
    if (!is_fit) return complain(name), numbers;
    numbers.push_back(each.get<int>());
  }
  return numbers;
}

bool JsonFields::flag(const char* name) {
  const Json* found = find(name, true);
  if (found == nullptr) return false;
  if (!found->is_boolean()) return complain(name), false;
  return found->get<bool>();
}

std::vector<EnvironmentEntry> JsonFields::entries(const char* name) {
  const Json* found = find(name, true);
  std::vector<EnvironmentEntry> entries;
  if (found == nullptr) return entries;
  if (!found->is_array()) return complain(name), entries;
  for (const Json& each : *found) {
    std::vector<std::string> pair = words_of(name, &each);
    if (pair.size() != 2) return complain(name), entries;
    entries.emplace_back(std::move(pair[0]), std::move(pair[1]));
  }
  return entries;
}

const Json* JsonFields::find(const char* name, bool is_needed) {
  if (!wrong_.empty()) return nullptr;
  const auto found = json_.find(name);
  if (found != json_.end()) return &*found;
  if (is_needed) complain(name);
  return nullptr;
}

std::vector<std::string> JsonFields::words_of(const char* name, const Json* json) {
  std::vector<std::string> words;
  if (json == nullptr) return words;
  if (!json->is_array()) return complain(name), words;
  for (const Json& each : *json) {
    if (!each.is_string()) return complain(name), words;
    words.push_back(to_bytes(each.get_ref<const std::string&>()));
  }
  return words;
}

}  // namespace drun::hosts

namespace drun::hosts {
std::string to_line(const Start& start) {
  Json environment = Json::array();
  for (const auto& [name, value] : start.environment)
    environment.push_back(json_texts({name, value}));
  Json json = {{"protocol", start.protocol},
               {"nonce", to_characters(start.nonce)},
               {"arguments", json_texts(start.arguments)},
               {"environment", std::move(environment)},
               {"directory", to_characters(start.directory)},
               {"host", to_characters(start.host)},
               {"label", to_characters(start.label)},
               {"is_placed_later", start.is_placed_later},
               {"seat", start.seat},
               {"has_own_address", start.has_own_address},
               {"report_file", to_characters(start.report_file)},
               {"keeps_events", start.keeps_events},
               {"sends_lines", start.sends_lines},
               {"keeps_all", start.keeps_all},
               {"log_directory", to_characters(start.log_directory)},
               {"columns", start.columns},
               {"has_color", start.has_color},
               {"utc_offset_s", start.utc_offset_s}};
  if (!start.interface.empty()) json["interface"] = to_characters(start.interface);
  if (!start.cpus.empty()) json["cpus"] = start.cpus;
  if (!start.scratch.empty()) json["scratch"] = to_characters(start.scratch);
  if (!start.secret.empty()) json["secret"] = to_characters(start.secret);
  return json.dump() + "\n";
}

std::string to_text(const Hello& hello) {
  const Json json = {{"protocol", hello.protocol},
                     {"version", to_characters(hello.version)},
                     {"problem", to_characters(hello.problem)},
                     {"exit_code", hello.exit_code},
                     {"port", hello.place.port},
                     {"master_port", hello.place.master_port},
                     {"addresses", json_texts(hello.place.addresses)},
                     {"machine", to_characters(hello.machine)}};
  return json.dump();
}

std::string to_text(const End& end) {
  const Json json = {{"exit_code", end.exit_code},
                     {"text", to_characters(end.text)},
                     {"report", to_characters(end.report)},
                     {"could_not_reach", end.could_not_reach},
                     {"events", to_characters(end.events)}};
  return json.dump();
}

Result<Start> parse_start(std::string_view line) {
  JsonFields fields(line, kMostLineBytes);
  Start start;
  start.protocol = fields.number("protocol");
  start.nonce = fields.text("nonce");
  start.arguments = fields.words("arguments");
  start.environment = fields.entries("environment");
  start.directory = fields.text("directory");
  start.host = fields.text("host");
  start.label = fields.text("label");
  start.is_placed_later = fields.flag("is_placed_later");
  start.seat = fields.number("seat");
  start.has_own_address = fields.flag("has_own_address");
  start.report_file = fields.text("report_file");
  start.keeps_events = fields.flag("keeps_events");
  start.sends_lines = fields.flag("sends_lines");
  start.keeps_all = fields.flag("keeps_all");
  start.log_directory = fields.text("log_directory");
  start.columns = fields.number("columns");
  start.has_color = fields.flag("has_color");
  start.utc_offset_s = fields.number("utc_offset_s");
  start.interface = fields.text("interface", false);
  start.cpus = fields.numbers("cpus");
  start.scratch = fields.text("scratch", false);
  start.secret = fields.text("secret", false);
  return fields.take(std::move(start), "the launcher's first line");
}

Result<Hello> parse_hello(std::string_view line) {
  JsonFields fields(line, kMostLineBytes);
  Hello hello;
  hello.protocol = fields.number("protocol");
  hello.version = fields.text("version");
  hello.problem = fields.text("problem");
  hello.exit_code = fields.number("exit_code");
  // Older versions lack these fields; the protocol version is checked elsewhere.
  hello.place.port = fields.number("port", false);
  hello.place.master_port = fields.number("master_port", false);
  hello.place.addresses = fields.words("addresses", false);
  hello.machine = fields.text("machine", false);
  return fields.take(std::move(hello), "the agent's first message");
}

Result<End> parse_end(std::string_view line) {
  JsonFields fields(line, kMostLineBytes);
  End end;
  end.exit_code = fields.number("exit_code");
  end.text = fields.text("text");
  end.report = fields.text("report");
  end.could_not_reach = fields.flag("could_not_reach");
  end.events = fields.text("events");
  return fields.take(std::move(end), "the agent's last message");
}

}  // namespace drun::hosts

namespace drun::hosts {
namespace {

using Order = RelayCommand::Order;

constexpr std::size_t kMostHostNumber = std::size_t{1} << 20;
constexpr std::size_t kMostExitCode = 255;
constexpr std::size_t kMostNonceBytes = 64;

struct Word {
  Order order;
  std::string_view text;
  bool has_bytes;
};
constexpr std::array<Word, 4> kWords{Word{Order::Start, "start ", true},
                                     Word{Order::To, "to ", true}, Word{Order::Eof, "eof ", false},
                                     Word{Order::Kill, "kill ", false}};

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
    if (word.order != command.order) continue;
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
    return RelayCommand{.order = word.order, .host = *host, .bytes = *bytes};
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
