// core. Words for another machine's login shell.
// Thread:  any.
#pragma once

#include <string>
#include <string_view>

namespace drun::hosts {

// One word that a Bourne shell reads as exactly `text`, whatever bytes are in it (but NUL, which
// no word can hold). csh and fish agree as long as there is no !, newline or backslash in it.
std::string shell_quoted(std::string_view text);

}  // namespace drun::hosts
