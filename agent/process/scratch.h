// edge. Directories for this process's short-lived files, in memory if possible.
//
// Place:   <parent>/drun_scratch.<name>.<random>, mode 0700. The parent is /dev/shm, or else the
//          temporary directory; of an agent of --local-nodes, a directory of the launcher: if the
//          launcher is killed, the agent and its guardian end together, and neither can remove a
//          directory.
// Removal: by the caller; if the process is killed, by the guardian (remove_if_killed); if that is
//          killed too, by the next guardian on the host (scratch_removal.h).
// Thread:  call these functions while there is one, or from one thread only.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun::agent {

// Creates one. Returns its absolute path. Errors: System, with the places that were tried. `name`:
// without a '.'.
Result<std::string> make_scratch_directory(std::string_view name);
// The same in `base`. Also removes those that killed processes left there.
Result<std::string> make_scratch_directory_in(const std::string& base, std::string_view name);

// From now on, directories are made in `directory`, which the caller's parent process removes.
void set_scratch_parent(std::string directory);
// Empty unless it was set.
const std::string& scratch_parent();

}  // namespace drun::agent
