#include "agent/workers/worker_key_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "agent/process/scratch.h"
#include "agent/process/scratch_removal.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/tls/secret.h"

namespace drun::agent {

WorkerKeyFile::~WorkerKeyFile() {
  if (!directory_.empty()) remove_tree(directory_.c_str());
}

void WorkerKeyFile::remove() {
  if (!path_.empty()) ::unlink(path_.c_str());
  path_.clear();
}

Result<void> WorkerKeyFile::prepare(const JoinSpec& join, int round) {
  remove();
  if (!join.secret) return {};
  Result<std::string> derived = worker_key(*join.secret, join.run_id, round);
  if (!derived)
    return with_context(derived.error(), "cannot derive the worker key from the secret");
  std::string& key = *derived;
  if (directory_.empty()) {
    Result<std::string> made = make_scratch_directory("worker_key");
    if (!made) return made.error();
    directory_ = *std::move(made);
  }
  path_ = directory_ + "/" + std::to_string(round);
  const UniqueFd fd(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool is_written =
      fd && ::write(fd.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  const int error = errno;
  wipe(key);
  if (is_written) return {};
  return system_error("write the worker key to " + path_, error);
}

}  // namespace drun::agent
