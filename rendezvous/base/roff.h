// core. Text in manual pages.
// Thread: any.
#pragma once

#include <string>
#include <string_view>

namespace drun {

// `text` for a manual page: nothing in it is taken for a request or an escape of roff.
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
