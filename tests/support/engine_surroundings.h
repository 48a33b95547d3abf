// Surroundings of a process as an engine would make them: variables and files from maps.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "launcher/engines/facts.h"

namespace drun::testing {

using Variables = std::map<std::string, std::string>;

inline engines::Surroundings around(Variables variables, std::string hostname = "gpu0",
                                    Variables files = {}) {
  return {.variables = [variables = std::move(variables)](
                           std::string_view name) -> std::optional<std::string> {
            const auto found = variables.find(std::string(name));
            return found == variables.end() ? std::nullopt : std::optional(found->second);
          },
          .hostname = std::move(hostname),
          .file_text =
              [files = std::move(files)](const std::string& path) -> std::optional<std::string> {
            const auto found = files.find(path);
            return found == files.end() ? std::nullopt : std::optional(found->second);
          }};
}

// `base` with some changed; an empty value is as good as unset.
inline Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

}  // namespace drun::testing
