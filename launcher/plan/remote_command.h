// core. How an agent is started on a host: the words of one ssh.
//
// Shape:   ssh [the user's --ssh-args] -T -o BatchMode=yes ... [user@]host COMMAND
//          The user's own come first, as ssh obeys the first of several. COMMAND is fixed but for
//          drun's path: program, arguments, directory and variables never pass a shell.
// Thread:  any.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/plan/host_plan.h"

namespace drun::hosts {

// For the login shell there: drun where it is here, else from PATH, as --from-stdin. With
// `may_copy` both have to be this version; else a copy of this drun is asked for
// (launcher/remote/copy_words.h), which the host keeps under its hash.
std::string remote_command(const std::string& own_path, bool may_copy);

std::vector<std::string> ssh_command(const HostOptions& options, const HostNode& node,
                                     const std::string& own_path);

}  // namespace drun::hosts
