#include "launcher/hosts/hand_over.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace drun::hosts {
namespace {

using Json = nlohmann::ordered_json;

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

// Of what to_characters gave; other characters become '?'.
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

Json texts(const std::vector<std::string>& words) {
  Json array = Json::array();
  for (const std::string& word : words) array.push_back(to_characters(word));
  return array;
}

// Fields of one object; the first that is missing or of another kind is noted.
class Fields {
 public:
  explicit Fields(std::string_view line)
      : json_(line.size() > kMostLineBytes
                  ? Json(Json::value_t::discarded)
                  : Json::parse(line.begin(), line.end(), nullptr, false)) {
    if (!json_.is_object()) wrong_ = "no JSON object";
  }

  std::string text(const char* name, bool is_needed = true) {
    const Json* found = find(name, is_needed);
    if (found == nullptr) return {};
    if (!found->is_string()) return complain(name), std::string();
    return to_bytes(found->get_ref<const std::string&>());
  }
  int number(const char* name) {
    const Json* found = find(name, true);
    if (found == nullptr) return 0;
    const bool is_fit = found->is_number_integer() && *found >= -1000000 && *found <= 1000000;
    if (!is_fit) return complain(name), 0;
    return found->get<int>();
  }
  bool flag(const char* name) {
    const Json* found = find(name, true);
    if (found == nullptr) return false;
    if (!found->is_boolean()) return complain(name), false;
    return found->get<bool>();
  }
  std::vector<std::string> words(const char* name) { return words_of(name, find(name, true)); }
  std::vector<EnvironmentEntry> entries(const char* name) {
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

  template <typename T>
  Result<T> take(T value, std::string_view what) {
    if (wrong_.empty()) return value;
    return Error{ErrorCode::Refused, std::string(what) + ": " + wrong_};
  }

 private:
  const Json* find(const char* name, bool is_needed) {
    if (!wrong_.empty()) return nullptr;
    const auto found = json_.find(name);
    if (found != json_.end()) return &*found;
    if (is_needed) complain(name);
    return nullptr;
  }
  void complain(const char* name) {
    if (wrong_.empty()) wrong_ = std::string("no proper \"") + name + "\"";
  }
  std::vector<std::string> words_of(const char* name, const Json* json) {
    std::vector<std::string> words;
    if (json == nullptr) return words;
    if (!json->is_array()) return complain(name), words;
    for (const Json& each : *json) {
      if (!each.is_string()) return complain(name), words;
      words.push_back(to_bytes(each.get_ref<const std::string&>()));
    }
    return words;
  }

  Json json_;
  std::string wrong_;
};

}  // namespace

std::string to_line(const Start& start) {
  Json environment = Json::array();
  for (const auto& [name, value] : start.environment) environment.push_back(texts({name, value}));
  Json json = {{"protocol", start.protocol},
               {"arguments", texts(start.arguments)},
               {"environment", std::move(environment)},
               {"directory", to_characters(start.directory)},
               {"host", to_characters(start.host)},
               {"label", to_characters(start.label)},
               {"report_file", to_characters(start.report_file)},
               {"sends_lines", start.sends_lines},
               {"keeps_all", start.keeps_all},
               {"log_directory", to_characters(start.log_directory)},
               {"columns", start.columns},
               {"has_colour", start.has_colour},
               {"utc_offset_s", start.utc_offset_s}};
  if (!start.secret.empty()) json["secret"] = to_characters(start.secret);
  return json.dump() + "\n";
}

std::string to_line(const Hello& hello) {
  const Json json = {{"protocol", hello.protocol},
                     {"version", to_characters(hello.version)},
                     {"problem", to_characters(hello.problem)},
                     {"exit_code", hello.exit_code}};
  return std::string(kMark) + json.dump() + "\n";
}

std::string to_line(const End& end) {
  const Json json = {{"exit_code", end.exit_code},
                     {"text", to_characters(end.text)},
                     {"report", to_characters(end.report)}};
  return std::string(kMark) + json.dump() + "\n";
}

Result<Start> parse_start(std::string_view line) {
  Fields fields(line);
  Start start;
  start.protocol = fields.number("protocol");
  start.arguments = fields.words("arguments");
  start.environment = fields.entries("environment");
  start.directory = fields.text("directory");
  start.host = fields.text("host");
  start.label = fields.text("label");
  start.report_file = fields.text("report_file");
  start.sends_lines = fields.flag("sends_lines");
  start.keeps_all = fields.flag("keeps_all");
  start.log_directory = fields.text("log_directory");
  start.columns = fields.number("columns");
  start.has_colour = fields.flag("has_colour");
  start.utc_offset_s = fields.number("utc_offset_s");
  start.secret = fields.text("secret", false);
  return fields.take(std::move(start), "the starter's first line");
}

Result<Hello> parse_hello(std::string_view line) {
  Fields fields(line);
  Hello hello;
  hello.protocol = fields.number("protocol");
  hello.version = fields.text("version");
  hello.problem = fields.text("problem");
  hello.exit_code = fields.number("exit_code");
  return fields.take(std::move(hello), "the agent's first line");
}

Result<End> parse_end(std::string_view line) {
  Fields fields(line);
  End end;
  end.exit_code = fields.number("exit_code");
  end.text = fields.text("text");
  end.report = fields.text("report");
  return fields.take(std::move(end), "the agent's last line");
}

}  // namespace drun::hosts
