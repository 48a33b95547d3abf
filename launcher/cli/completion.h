// core. What a shell may complete a command line of drun with.
//
// The scripts of the shells (completion/) pass the words up to the cursor to `drun --complete` and
// know no option themselves, so a script never differs from the drun that it completes for. tcsh
// cannot call a function: its script lists the options.
// Errors:  none; a line that drun would reject is completed as far as it is understood.
// Thread:  any.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/command_syntax.h"

namespace drun {

struct Completion {
  struct Candidate {
    std::string word{};
    std::string text{};  // one line for the user; may be empty
    bool operator==(const Candidate&) const = default;
  };
  // What the shell, or the caller, finds out in addition.
  enum class More { Nothing, Files, Directories, Programs, Hosts, Jobs };

  std::vector<Candidate> candidates{};
  More more = More::Nothing;
  std::string stem{};                     // precedes each of `more`: "--hosts=a," of "--hosts=a,b"
  std::optional<std::string> hostfile{};  // where the hosts are
  // The index of the program among the words: what follows it is the program's to complete.
  std::optional<std::size_t> program{};
  bool operator==(const Completion&) const = default;
};

// `words`: the command's name, then all words up to the cursor; the last one is to be completed and
// may be empty.
Completion complete(std::span<const std::string> words, std::span<const CommandSyntax> commands);

// A first line ":files", ":directories", ":programs", ":hosts", ":program N" or ":nothing", then
// one candidate a line, with its text after a tab.
std::string completion_lines(const Completion& completion);

enum class Shell { Bash, Zsh, Tcsh, Fish };

// The script that a shell reads, for drun under the name `invoked_as`.
std::string completion_script(Shell shell, std::string_view invoked_as,
                              std::span<const CommandSyntax> commands);

}  // namespace drun
