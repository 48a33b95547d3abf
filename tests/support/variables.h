// Environment variables from a map.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "rendezvous/job/world.h"

namespace drun::test {

using Variables = std::map<std::string, std::string, std::less<>>;

inline Lookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// Returns `base` with the changes. Most readers treat an empty value as unset.
inline Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

}  // namespace drun::test
