// core. Text that reports share: durations, exit statuses, and workers' text made safe for a
// terminal.
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

// "exit code 3"; for a signal also whether drun sent it. The JSON report has it.
std::string how_it_ended(const Failure& failure);

// The same as the end of a sentence: "exited with code 3", "was killed by signal 9 (SIGKILL,
// killed), not sent by drun", "could not be started: no such file or directory", "hung: ...".
std::string verb_phrase(const Failure& failure);

// Insertions, deletions and replacements of one byte that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// A worker's line, safe for a terminal: drops text that a carriage return overwrote and color
// sequences, keeps tabs, and escapes other control characters (\x1b).
std::string printable(std::string_view line);

}  // namespace drun

// core. Words for another machine's login shell.
// Thread:  any.

namespace drun::hosts {

// One word that a Bourne shell reads as exactly `text`, whatever bytes are in it (but NUL, which
// no word can hold). csh and fish agree as long as there is no !, newline or backslash in it.
std::string shell_quoted(std::string_view text);

}  // namespace drun::hosts
