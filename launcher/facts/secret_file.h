// edge. Reads the file of --secret-file, if it is fit to hold a secret: a regular file of this
// user's or root's, which nobody else can read. A link to such a file is good too (Kubernetes
// mounts secrets so): what counts is the file that is opened in the end.
//
// Errors:  Usage, naming the file, the reason and the remedy.   Thread: any.
#pragma once

#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/net/secret.h"

namespace drun {

Result<Secret> read_secret_file(const std::string& path);

}  // namespace drun
