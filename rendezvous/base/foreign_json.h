// core. Reads JSON of other processes safely: limits its depth and the range of its numbers. Errors
// are nlohmann's: a discarded value, or a type_error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

namespace drun {

// Discarded if it is not JSON or nests deeper than 64: copying and printing it are recursive.
template <typename Json = nlohmann::json>
Json parse_foreign_json(std::string_view text) {
  constexpr int kDeepest = 64;
  bool is_too_deep = false;
  const auto limit = [&is_too_deep](int depth, typename Json::parse_event_t event, Json&) {
    using Event = typename Json::parse_event_t;
    const bool is_start = event == Event::object_start || event == Event::array_start;
    is_too_deep = is_too_deep || (is_start && depth >= kDeepest);
    return !is_too_deep;
  };
  Json json = Json::parse(text, limit, false);
  return is_too_deep ? Json(Json::value_t::discarded) : json;
}

// In place of get<int>(), whose result is undefined for fractions beyond the range of int. A value
// that is not a whole number is a type_error; one beyond the range becomes the nearest int.
template <typename Json>
int int_of(const Json& json) {
  using Limits = std::numeric_limits<int>;
  if (json.is_number_unsigned()) {
    const auto value = json.template get_ref<const typename Json::number_unsigned_t&>();
    return static_cast<int>(std::min<std::uint64_t>(value, Limits::max()));
  }
  const auto value = json.template get_ref<const typename Json::number_integer_t&>();
  return static_cast<int>(std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
}

// The same for a count: negative values become 0.
template <typename Json>
std::size_t count_in(const Json& json) {
  return static_cast<std::size_t>(std::max(int_of(json), 0));
}

}  // namespace drun
