// core. Objects of JSON that go over ssh, read field by field; for hand_over.cc and relay_wire.cc.
//
// Shape:   texts are bytes: those beyond ASCII travel as the characters U+0080 to U+00FF.
// Errors:  the first field that is missing or of another kind is what take() says.
// Thread:  any.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/result.h"
#include "rendezvous/world.h"

namespace drun::hosts {

using Json = nlohmann::ordered_json;

std::string to_characters(std::string_view bytes);
// Of what to_characters gave; other characters become '?'.
std::string to_bytes(std::string_view text);
Json json_texts(const std::vector<std::string>& words);

class JsonFields {
 public:
  JsonFields(std::string_view line, std::size_t most_bytes);

  std::string text(const char* name, bool is_needed = true);
  int number(const char* name);
  bool flag(const char* name);
  std::vector<std::string> words(const char* name) { return words_of(name, find(name, true)); }
  std::vector<EnvironmentEntry> entries(const char* name);

  template <typename T>
  Result<T> take(T value, std::string_view what) {
    if (wrong_.empty()) return value;
    return Error{ErrorCode::Refused, std::string(what) + ": " + wrong_};
  }

 private:
  const Json* find(const char* name, bool is_needed);
  void complain(const char* name) {
    if (wrong_.empty()) wrong_ = std::string("no proper \"") + name + "\"";
  }
  std::vector<std::string> words_of(const char* name, const Json* json);

  Json json_;
  std::string wrong_;
};

}  // namespace drun::hosts
