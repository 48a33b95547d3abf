// edge. A heartbeat file a worker (DRUN_HEARTBEAT_FILE), made by the agent in a directory of its
// own.
//
// Files:   <temporary>/drun_heartbeats_<random>/<round>.<local rank>: the directory 0700, files
//          0600, of kPulseBytes zeros; in /dev/shm where it can be, as a store into a mapped file
//          of a disk costs writes. The agent reads through the descriptor that it made the file
//          with: what a worker puts in its place is not followed.
// Owner:   HangWatch; removes all of it.   Thread: the io_context's only.
// Errors:  prepare: System, naming the path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

// core. Reads a worker's heartbeat file (rendezvous/base/pulse_page.h), whose bytes may be
// anything. Owner:   values; copy freely.   Thread: any.

namespace drun::agent {

struct Pulse {
  std::uint64_t beats = 0;    // 0: it has written nothing
  std::uint64_t arrived = 0;  // operations of the whole world it has begun; 0: not known
  bool is_inside = false;     // in an operation
  std::string doing{};        // "in all_reduce #812 (4096 bytes)"; empty: not known
  bool operator==(const Pulse&) const = default;
};

// `page`: the file's bytes; anything else than a page of this layout is a Pulse that knows nothing.
// Of several operations that have not ended the oldest is what the worker is in.
Pulse read_pulse(std::string_view page);

}  // namespace drun::agent

namespace drun::agent {

class HeartbeatFiles {
 public:
  HeartbeatFiles() = default;
  HeartbeatFiles(const HeartbeatFiles&) = delete;
  HeartbeatFiles& operator=(const HeartbeatFiles&) = delete;
  ~HeartbeatFiles();

  // New ones for each round; those of the round before go.
  Result<void> prepare(int round, int workers);

  const std::string& path(std::size_t local_rank) const { return files_[local_rank].path; }

  // Changes when the worker beats, by writing or by touching the file; 0: it never has.
  std::uint64_t heartbeat(std::size_t local_rank) const;
  Pulse pulse(std::size_t local_rank) const;

 private:
  struct File {
    std::string path;
    UniqueFd fd;
    std::int64_t made_ns = 0;
  };

  Result<void> make_directory();
  void remove_files();

  std::string directory_;
  std::vector<File> files_;
};

}  // namespace drun::agent
