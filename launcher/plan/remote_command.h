// core. The ssh command that starts an agent on a host.
//
//          ssh [--ssh-args] -T -o BatchMode=yes ... [user@]host COMMAND
//
// The user's options are first, because ssh uses the first value of each. COMMAND is constant
// except for drun's path: program, arguments, directory and variables are never parsed by a shell.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/plan/host_plan.h"

namespace drun::hosts {

// For the login shell of the host: runs drun --from-stdin, from the same path as here or else from
// PATH. With `may_copy`, a drun of another version is not used; instead the host asks for a copy of
// this drun (launcher/remote/copy_words.h) and stores it under its hash.
std::string remote_command(const std::string& own_path, bool may_copy);

std::vector<std::string> ssh_command(const HostOptions& options, const HostNode& node,
                                     const std::string& own_path);

}  // namespace drun::hosts
