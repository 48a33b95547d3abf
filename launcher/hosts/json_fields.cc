#include "launcher/hosts/json_fields.h"

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

std::string JsonFields::text(const char* name, bool is_needed) {
  const Json* found = find(name, is_needed);
  if (found == nullptr) return {};
  if (!found->is_string()) return complain(name), std::string();
  return to_bytes(found->get_ref<const std::string&>());
}

int JsonFields::number(const char* name) {
  const Json* found = find(name, true);
  if (found == nullptr) return 0;
  const bool is_fit = found->is_number_integer() && *found >= -1000000 && *found <= 1000000;
  if (!is_fit) return complain(name), 0;
  return found->get<int>();
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
