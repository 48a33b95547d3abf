// edge. Makes the commands of a round's workers, and of the preloaded interpreter. Opens what the
// workers need for it: the key file, the progress files and standard input.
//
// Owner:   Agent; the spec and the sources must outlive it.   Thread: the io_context's only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/hang/worker_watch.h"
#include "agent/output/output.h"
#include "agent/preload/preloader.h"
#include "agent/process/scratch.h"
#include "agent/spawn/child_descriptors.h"
#include "agent/spawn/command.h"
#include "agent/spec.h"
#include "agent/workers/progress_files.h"
#include "agent/workers/worker_stdin.h"
#include "rendezvous/base/result.h"
#include "rendezvous/job/join_spec.h"
#include "rendezvous/job/world.h"

namespace drun::agent {

// --- The file with the worker key of the current round (rendezvous/tls/secret.h)
//
// A file, because wrappers, shells and containers that share /dev/shm keep a path but close
// descriptors, and because programs log their environment.
// Files:   <round> in a scratch directory (scratch.h), 0600. None if the job has no secret.

class WorkerKeyFile {
 public:
  // Writes the file of this round and removes that of the previous one. Errors: System, with the
  // path, or because OpenSSL cannot be used.
  Result<void> prepare(const JoinSpec& join, int round);

  // The value of DRUN_WORKER_KEY_FILE; empty if the job has no secret.
  const std::string& path() const { return path_; }

 private:
  Result<void> write(const std::string& key, int round);

  ScratchDirectory directory_{"worker_key"};
  std::string path_;
};

// --- The commands

class RoundCommands {
 public:
  struct Sources {
    WorkerStdin& standard_input;
    WorkerWatch& watch;
    ProgressFiles& progress;
  };

  // Raises this process's limit on descriptors. The workers get the user's.
  RoundCommands(const AgentSpec& spec, Sources sources)
      : spec_(spec), sources_(sources), inherited_(to_lines(spec.worker.environment)) {}
  RoundCommands(const RoundCommands&) = delete;
  RoundCommands& operator=(const RoundCommands&) = delete;

  // The variables that all workers share, as "NAME=value" lines.
  const std::vector<std::string>& inherited() const { return inherited_; }

  // One command per worker, or per probe of a preflight, valid until the next call. `streams`: by
  // local rank. Errors: System if a file or pipe cannot be opened.
  Result<std::vector<Command>> make(const World& world, const std::vector<WorkerStreams>& streams);

  // The interpreter that --preload starts: as for local rank 0. Absent without --preload, and if
  // that worker is not a Python program.
  std::optional<PreloaderSpec> preloader() const;

 private:
  const AgentSpec& spec_;
  Sources sources_;
  std::optional<std::uint64_t> users_limit_ = raise_descriptor_limit();
  std::vector<std::string> inherited_;
  WorkerKeyFile key_file_;
};

}  // namespace drun::agent
