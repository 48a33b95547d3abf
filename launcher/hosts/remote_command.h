// core. The ssh command that starts an agent on a host, and the dialog with its login script if the
// host has no drun.
//
//          ssh [--ssh-args] -T -o BatchMode=yes ... [user@]host COMMAND
//
// The user's options are first, because ssh uses the first value of each. COMMAND is constant
// except for drun's path: program, arguments, directory and variables are never parsed by a shell.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/hosts/host_plan.h"

namespace drun::hosts {

// For the login shell of the host: runs drun --from-stdin, from the same path as here or else from
// PATH. With `may_copy`, a drun of another version is not used; instead the host asks for a copy of
// this drun (CopyWords) and stores it under its hash.
std::string remote_command(const std::string& own_path, bool may_copy);

std::vector<std::string> ssh_command(const HostOptions& options, const HostNode& node,
                                     const std::string& own_path);

// --- The dialog between the login script of a host without drun and the launcher, which copies its
// own drun to the host
//
//   script -> launcher  "@drun want MACHINE [VERSION]": neither path has this version. MACHINE is
//                       the output of uname -m; VERSION is the version of an installed drun.
//   launcher -> script  "@drun copy BYTES SHA256", or "@drun refuse REASON". The script has ignored
//                       everything that was sent earlier.
//   script -> launcher  "@drun send": the copy is not in the host's cache; expects BYTES bytes.
//   script -> launcher  "@drun start": executes the copy next. The launcher repeats everything
//                       that the agent is to read.
//
// CopyWords finds these lines in the output of the login, which may end without a newline. Any
// other output is text.

struct CopyWanted {
  std::string machine{};
  std::string installed{};  // empty: none
  bool operator==(const CopyWanted&) const = default;
};
struct CopyRequested {
  bool operator==(const CopyRequested&) const = default;
};
struct CopyStarts {
  bool operator==(const CopyStarts&) const = default;
};
using CopyWord = std::variant<CopyWanted, CopyRequested, CopyStarts>;

std::string copy_line(std::size_t bytes, std::string_view hash);
std::string refuse_line(std::string_view reason);

class CopyWords {
 public:
  struct Listener {
    std::function<void(const CopyWord&)> on_word;
    std::function<void(std::string_view)> on_text;  // all other text, in pieces of any size
  };

  // Buffers at most one word.
  void take(std::string_view bytes, const Listener& listener);
  void end_of_stream(const Listener& listener);

 private:
  std::string held_;
};

}  // namespace drun::hosts
