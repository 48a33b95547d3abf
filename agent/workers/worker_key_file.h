// edge. The file with the worker key of the current round (rendezvous/tls/secret.h), for the
// workers of this node.
//
// A file, because wrappers, shells and containers that share /dev/shm keep a path but close
// descriptors, and because programs log their environment.
// Files:   <temporary>/drun_worker_key_<random>/<round>, preferably in /dev/shm: the directory
//          0700, the file 0600. None if the job has no secret.
// Owner:   Agent; the destructor removes the directory.   Thread: the io_context's only.
#pragma once

#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"

namespace drun::agent {

class WorkerKeyFile {
 public:
  WorkerKeyFile() = default;
  WorkerKeyFile(const WorkerKeyFile&) = delete;
  WorkerKeyFile& operator=(const WorkerKeyFile&) = delete;
  ~WorkerKeyFile();

  // Writes the file of this round and removes that of the previous one. Errors: System, with the
  // path, or because OpenSSL cannot be used.
  Result<void> prepare(const JoinSpec& join, int round);

  // The value of DRUN_WORKER_KEY_FILE; empty if the job has no secret.
  const std::string& path() const { return path_; }

 private:
  void remove();

  std::string directory_;
  std::string path_;
};

}  // namespace drun::agent
