// core. Shell completion of drun's command line.
//
// The shell scripts (completion/) pass the words up to the cursor to `drun --complete` and contain
// no options, so a script always matches the drun that it completes. tcsh cannot call a function,
// so its script lists the options. A line that drun would reject is completed as far as possible.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/arguments.h"

namespace drun {

struct Completion {
  struct Candidate {
    std::string word{};
    std::string text{};  // one-line description; may be empty
    bool operator==(const Candidate&) const = default;
  };
  // Further candidates, which the shell or the caller adds.
  enum class More { Nothing, Files, Directories, Programs, Hosts, Jobs };

  std::vector<Candidate> candidates{};
  More more = More::Nothing;
  std::string stem{};                     // precedes each of `more`: "--hosts=a," of "--hosts=a,b"
  std::optional<std::string> hostfile{};  // the file that lists the hosts
  // Index of the program in the words; the shell completes the words after it for the program.
  std::optional<std::size_t> program{};
  bool operator==(const Completion&) const = default;
};

// `words`: the command name and all words up to the cursor. The last word is completed and may be
// empty.
Completion complete(std::span<const std::string> words, std::span<const CommandSyntax> commands);

// The output of `drun --complete`. The first line is ":files", ":directories", ":programs",
// ":hosts", ":program N" or ":nothing". Each further line has one candidate and, after a tab, its
// description.
std::string completion_lines(const Completion& completion);

// The alternatives in `type`: "auto", "cpu" and "gpu" for "N|auto|cpu|gpu".
std::vector<std::string> choices_of(std::string_view type);

enum class Shell { Bash, Zsh, Tcsh, Fish };

// The completion script for drun under the name `invoked_as`.
std::string completion_script(Shell shell, std::string_view invoked_as,
                              std::span<const CommandSyntax> commands);

}  // namespace drun
