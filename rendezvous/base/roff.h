// core. Text in manual pages.
#pragma once

#include <string>
#include <string_view>

namespace drun {

// Escapes `text` for a manual page, so that roff finds no request or escape in it.
inline std::string roff_text(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    const bool begins_line = roff.empty() || roff.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\')
      roff += "\\e";
    else if (c == '-')
      roff += "\\-";
    else if (c == '\'')
      roff += "\\(aq";
    else if (c == '^')
      roff += "\\(ha";
    else if (c == '`')
      roff += "\\(ga";
    else if (c == '~')
      roff += "\\(ti";
    else
      roff += c;
  }
  return roff;
}

}  // namespace drun
