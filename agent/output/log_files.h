// edge. The log directory: torchrun's layout and names, made, wiped and removed.
//
// Layout:  <log_dir>/<run_id>_<random>/attempt_<round>/<worker>/{stdout.log,stderr.log,error.json}
//          and attempt_<round>/filtered_{stdout,stderr}.log. A worker's number is its local rank;
//          with --gather-logs its rank. The random directory is mkdtemp's (0700), one an agent;
//          without a log_dir it is <temporary>/drun_<run_id>_<random>.
// Threads: make() and remove() while there is one; between them everything can block, and runs on
//          the FileWriter of the directory. Names are asked for on any thread.
// Owner:   Output, HostLines; jobs that hang hold it, too.
// Errors:  Result; Usage when the user's log_dir cannot be used, else System; they name the path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

// `run_id` with every byte but letters, digits, '.', '_' and '-' as '_', at most 64 of them, never
// empty or beginning with '.'.
std::string as_file_name(std::string_view run_id);

class LogFiles {
 public:
  enum class Stream { Stdout, Stderr };

  // OutputSpec::log_dir's three cases: absent, empty (no files: every path is empty then), a path.
  // Absent and without streams to keep, /dev/shm is taken rather than /tmp where it can be:
  // removing a directory costs 5 ms on some ext4 disks, so a job of 64 workers would end 0.3 s
  // late.
  Result<void> make(const std::optional<std::string>& log_dir, std::string_view run_id,
                    bool holds_streams);

  // An attempt directory that is there already is wiped.
  Result<void> make_attempt(int round);
  // The same, but the one of `round` stays when it is the last that was made.
  Result<void> reach_attempt(int round);
  // One that is there already is good.
  Result<void> make_worker_directory(int round, int worker);

  bool has_place() const { return !place_.empty(); }
  bool is_temporary() const { return is_temporary_; }
  const std::string& place() const { return place_; }
  // In the attempt directory of `round`; empty: no files.
  std::string stream_path(int round, int worker, Stream stream) const;
  std::string filtered_path(int round, Stream stream) const;
  std::string error_path(int round, int worker) const;

  // Removes everything under place().
  void remove();

 private:
  Result<void> make_random(const std::string& base, const std::string& prefix);
  std::string attempt_path(int round) const;
  std::string worker_path(int round, int worker, std::string_view name) const;

  std::string place_;
  std::optional<int> round_;  // of the last attempt directory
  bool is_temporary_ = false;
};

// Emptied, for appending: workers, their children and we may write to it side by side.
Result<UniqueFd> create_log(const std::string& path);

// The last bytes of a file that another process writes; empty when it cannot be read.
std::string read_end_of(const std::string& path, std::size_t at_most_bytes);

// A part of a regular file that another process writes.
struct FilePart {
  bool is_read = false;
  std::uint64_t size_bytes = 0;
  std::string text{};
};
FilePart read_part_of(const std::string& path, std::uint64_t offset, std::size_t at_most_bytes);

// Writes all of it, to a regular file. Returns 0 or errno.
int write_all(int fd, std::string_view bytes);

}  // namespace drun::agent
