// edge. Reads the file of --secret-file. It must be a regular file that belongs to this user or
// root and that no other user can read. A symbolic link to such a file is accepted (Kubernetes
// mounts secrets that way); the checks apply to the opened file.
//
// Errors:  Usage, with the file, the reason and the remedy.
#pragma once

#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/net/secret.h"

namespace drun {

Result<Secret> read_secret_file(const std::string& path);

}  // namespace drun
