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
#include <vector>

#include "agent/hang/pulse_text.h"
#include "rendezvous/result.h"
#include "rendezvous/unique_fd.h"

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
