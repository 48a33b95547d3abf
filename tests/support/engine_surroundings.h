// Builds a process's environment as an engine would set it up, from maps of variables and files.
#pragma once

#include <string>
#include <utility>

#include "launcher/engines/detect.h"
#include "launcher/engines/engine_facts.h"
#include "tests/support/results.h"
#include "tests/support/variables.h"

namespace drun::test {

inline engines::EngineContext around(Variables variables, std::string hostname = "gpu0",
                                     Variables files = {}) {
  return {.variables = lookup_in(std::move(variables)),
          .hostname = std::move(hostname),
          .file_text = lookup_in(std::move(files))};
}

// Returns the facts of the detected engine; requires that one is detected.
inline engines::Facts facts_of(const Variables& variables, const std::string& hostname = "gpu0",
                               const Variables& files = {}) {
  const auto facts = engines::detect(around(variables, hostname, files));
  REQUIRE(facts);
  return *facts;
}

}  // namespace drun::test
