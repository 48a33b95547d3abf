// core. Words that reports share: durations, ends, foreign text made safe for a terminal.
// Thread: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/job/outcome.h"

namespace drun {

// "0.041 s", "12.3 s", "3 min 12 s", "2 h 5 min".
std::string in_words(std::chrono::milliseconds duration);

// "1 node", "2 nodes".
std::string counted(std::size_t count, std::string_view thing);

// How a worker ended, with what is known of the hand that killed it.
std::string how_it_ended(const Failure& failure);

// One line of a worker's, to be shown: what a carriage return painted over is left out, colours are
// dropped, other control characters become \x1b and the like, tabs stay.
std::string printable(std::string_view line);

}  // namespace drun

// core. Words for another machine's login shell.
// Thread:  any.

namespace drun::hosts {

// One word that a Bourne shell reads as exactly `text`, whatever bytes are in it (but NUL, which
// no word can hold). csh and fish agree as long as there is no !, newline or backslash in it.
std::string shell_quoted(std::string_view text);

}  // namespace drun::hosts
