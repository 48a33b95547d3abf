// core. Text shared by plans and reports: durations, exit statuses, words of a shell, and worker
// output made safe for a terminal.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/outcome.h"

namespace drun {

// "0.041 s", "12.3 s", "3 min 12 s", "2 h 5 min".
std::string in_words(std::chrono::milliseconds duration);
// The same for seconds from outside; "?" if they are not a duration.
std::string in_words(double seconds);

// The text in a color or style of terminals, such as "1;31", if there is color.
std::string painted(std::string_view color, std::string_view text, bool has_color);

// "1 node", "2 nodes". A negative count is shown as 0.
template <std::integral Count>
std::string counted(Count count, std::string_view thing) {
  return std::to_string(std::max(count, Count{0})) + " " + std::string(thing) +
         (count == 1 ? "" : "s");
}

// "8 workers on 2 nodes".
std::string job_size(int workers, int nodes);

// The first 8 of the 32 digits of a random run id, which are enough to identify a job; other ids as
// they are.
std::string short_run_id(const std::string& id);

// "exit code 3"; for a signal, also whether drun sent it. Part of the JSON report.
std::string how_it_ended(const Failure& failure);

// The same as a predicate: "exited with code 3", "was killed by signal 9 (SIGKILL, killed), not
// sent by drun", "could not be started: no such file or directory", "hung: ...".
std::string verb_phrase(const Failure& failure);

// The Levenshtein distance in bytes.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Bytes of the control character that `line` begins with; 0: it begins with another one, or a tab.
// Characters that change the direction of text count, because they can disguise it.
std::size_t control_size(std::string_view line);

// A line of worker output, safe for a terminal: drops color sequences and text that a carriage
// return overwrote, keeps tabs, and escapes other control characters (\x1b).
std::string printable(std::string_view line);

// --- Quoting for a shell
//
// Quotes `text` as one word of a Bourne shell. `text` may contain any byte except NUL. csh and fish
// read the same word unless it contains !, newline or backslash.
std::string shell_quoted(std::string_view text);
// The words of a command.
std::string shell_quoted(const std::vector<std::string>& words);

}  // namespace drun
