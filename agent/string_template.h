// core. Replaces placeholders in text, as Python's string.Template.safe_substitute does, which
// torchrun uses.   Thread: any.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace drun::agent {

enum class TemplateSyntax {
  Python,      // "${name}" and "$name" are placeholders; "$$" becomes "$"
  BracesOnly,  // only "${name}"
};

// Names are those of variables in C. Placeholders without a value, and a "$" before anything else,
// are left unchanged.
std::string substitute(std::string_view text, TemplateSyntax syntax,
                       const std::function<std::optional<std::string>(std::string_view)>& value_of);

}  // namespace drun::agent
