// core. A hash map from text that can be asked with a string_view, without making a string of it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace drun {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

template <typename T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

}  // namespace drun
