// edge. Creates, clears and removes the log directory, with torchrun's layout and names.
//
// Layout:  <log_dir>/<run_id>_<random>/attempt_<round>/<worker>/{stdout.log,stderr.log,error.json}
//          and attempt_<round>/filtered_{stdout,stderr}.log; without a log_dir and without streams
//          only attempt_<round>/error_<worker>.json, because directories cost time. A worker's
//          number is its local rank, or its rank with --gather-logs. mkdtemp(3) creates the random
//          directory (0700), one per agent; without a log_dir it is
//          <temporary>/drun_<run_id>_<random>, or without streams a scratch directory.
// Threads: call make() and remove() while there is one thread. In between, all functions that can
//          block run on the directory's FileWriter, unless is_in_memory(). The functions that
//          return names can be called on any thread.
// Owner:   Output, HostLines; shared with jobs that may hang.
// Errors:  Usage if the user's log_dir cannot be used, else System; with the path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

// `run_id` with every byte except letters, digits, '.', '_' and '-' replaced by '_'. At most 64
// bytes, never empty, and never beginning with '.'.
std::string as_file_name(std::string_view run_id);

class LogFiles {
 public:
  enum class Stream { Stdout, Stderr };

  // `log_dir` has the three cases of OutputSpec::log_dir: absent, empty (no files; every path is
  // empty then) or a path. If it is absent and no streams are kept, /dev/shm is preferred over
  // /tmp: removing a directory takes 5 ms on some ext4 disks, so a job of 64 workers would end 0.3
  // s later.
  Result<void> make(const std::optional<std::string>& log_dir, std::string_view run_id,
                    bool holds_streams);

  // Clears the attempt directory if it exists. Makes place() again if it has been removed.
  Result<void> make_attempt(int round);
  // The same, except that the directories of the latest round and of earlier ones are kept: lines
  // that other nodes sent in an earlier round may arrive late.
  Result<void> reach_attempt(int round);
  // Succeeds if the directory exists already.
  Result<void> make_worker_directory(int round, int worker);

  bool has_place() const { return !place_.empty(); }
  // The directory is in memory, and few small files are in it: nothing of it can block.
  bool is_in_memory() const { return is_in_memory_; }
  bool is_temporary() const { return is_temporary_; }
  const std::string& place() const { return place_; }
  // Paths in the attempt directory of `round`; empty: no files.
  std::string stream_path(int round, int worker, Stream stream) const;
  std::string filtered_path(int round, Stream stream) const;
  std::string error_path(int round, int worker) const;

  // Removes everything under place().
  void remove();

 private:
  Result<void> make_random(const std::string& base, const std::string& prefix);
  Result<void> keep_place() const;
  std::string attempt_path(int round) const;
  std::string worker_path(int round, int worker, std::string_view name) const;

  std::string place_;
  std::optional<int> round_;  // of the attempt directory created last
  bool is_temporary_ = false;
  bool is_flat_ = false;  // no directory per worker
  bool is_in_memory_ = false;
};

// Truncates the file and opens it for appending, because workers, their children and drun may write
// to it at the same time.
Result<UniqueFd> create_log(const std::string& path);

// The last bytes of a file that another process writes; empty if it cannot be read.
std::string read_end_of(const std::string& path, std::size_t at_most_bytes);

// A part of a regular file that another process writes.
struct FilePart {
  bool is_read = false;
  std::uint64_t size_bytes = 0;
  std::string text{};
};
FilePart read_part_of(const std::string& path, std::uint64_t offset, std::size_t at_most_bytes);

// Writes all bytes to a regular file. Returns 0 or errno.
int write_all(int fd, std::string_view bytes);

}  // namespace drun::agent
