// edge. One heartbeat file per worker (DRUN_HEARTBEAT_FILE), in a directory that the agent creates.
//
// Files:   <round>.<local rank> in a scratch directory (scratch.h), 0600, of kPulseBytes zeros. In
//          memory if possible, because stores into a file mapped from a disk cause disk writes.
//          Their blocks are allocated: a store into a page for which there is no room is a SIGBUS.
//          The agent reads through the descriptor with which it created the file, so a file that a
//          worker puts in its place is ignored.
// Owner:   WorkerWatch; the destructor removes the directory.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/process/scratch.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

// --- The content of a heartbeat file (rendezvous/base/pulse_page.h)

struct Pulse {
  std::uint64_t beats = 0;    // 0: none so far
  std::uint64_t arrived = 0;  // operations on the whole world that it has begun; 0: unknown
  bool is_inside = false;     // inside an operation
  std::string doing{};        // "in all_reduce #812 (4096 bytes)"; empty: unknown
  bool operator==(const Pulse&) const = default;
};

// Parses the file's bytes, which can be anything: an invalid page gives an empty Pulse. If several
// operations are pending, `doing` is the oldest one.
Pulse read_pulse(std::string_view page);

struct CallTimes {
  std::uint64_t begun = 0;  // operations; 0: none, or unknown
  std::chrono::nanoseconds in_calls{0};
  bool operator==(const CallTimes&) const = default;
};

// The same for the time in calls. `now`: of the clock of the page (CLOCK_MONOTONIC).
CallTimes read_call_times(std::string_view page, std::chrono::nanoseconds now);

// --- The files of this node's workers

class HeartbeatFiles {
 public:
  // Creates the files of a new round and removes those of the previous one. On failure there are
  // none. Errors: System, with the path.
  Result<void> prepare(int round, int workers);

  // Empty if there is no such file.
  std::string path(std::size_t local_rank) const {
    return local_rank < files_.size() ? files_[local_rank].path : "";
  }

  // Changes with each heartbeat (a write to the file, or a touch of it); 0: none so far.
  std::uint64_t heartbeat(std::size_t local_rank) const;
  Pulse pulse(std::size_t local_rank) const;
  CallTimes call_times(std::size_t local_rank) const;

 private:
  struct File {
    std::string path;
    UniqueFd fd;
    std::int64_t made_ns = 0;
  };

  Result<void> make_files(int round, int workers);
  std::string page(std::size_t local_rank) const;

  ScratchDirectory directory_{"heartbeats"};
  std::vector<File> files_;
};

}  // namespace drun::agent
