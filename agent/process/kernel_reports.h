// edge. Reads the kernel's reports about processes: the records of its log, and kills by its
// out-of-memory killer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace drun::agent {

// --- The records that the kernel has logged since a moment, from /dev/kmsg (Linux's
// Documentation/ABI/testing/dev-kmsg)
//
// Never blocks. Where the log is not readable (kernel.dmesg_restrict, most containers), there are
// no records.

class KernelLog {
 public:
  explicit KernelLog(const std::string& path = "/dev/kmsg");

  // Only records after this call are read.
  void skip();

  // Calls `visit` with the text of each new record, without its prefix. Records that programs have
  // written to the log are left out. Stops after kMostRecords; the next call continues.
  void read(const std::function<void(std::string_view)>& visit);

  static constexpr std::size_t kMostRecords = std::size_t{16} << 10;

 private:
  UniqueFd log_;
};

// --- Whether a SIGKILL came from the out-of-memory killer
//
// Sources: the cgroup's count of such kills (cgroup v2 memory.events, v1 memory.oom_control; in any
//          container), which shows that one happened; and the kernel log, if it is readable, which
//          names the process.
// Errors:  a source that cannot be read counts as no.

// Parses "oom_kill 3" of memory.events or memory.oom_control; absent: no such line.
std::optional<std::uint64_t> parse_oom_kills(std::string_view text);

// The pid in the text of one record of the kernel log: "Out of memory: Killed process 123 (python3)
// ...", or "Memory cgroup out of memory: Killed process 123 ...". "oom_reaper: ..." does not count.
std::optional<int> parse_oom_victim(std::string_view text);

// The files that may count the kills of this process's cgroup, under the usual mount points: of the
// cgroup itself, then of its parents up to the root of the mount. The first that exists counts
// them: a cgroup without a memory controller is accounted to its parent, and in a container with
// the host's cgroup namespace the root of the mount is the container's own cgroup.
std::vector<std::string> oom_files(std::string_view proc_self_cgroup);

// Of this process's cgroup so far; absent: it cannot be read. Reads files.
std::optional<std::uint64_t> count_oom_kills();

class OomWatch {
 public:
  // Only kills after this call count.
  void begin();

  // Call once per worker that was killed by SIGKILL. The cgroup's count does not identify the
  // process, so each increment is assigned to one such worker.
  bool is_victim(int pid);

 private:
  KernelLog log_;
  std::uint64_t seen_ = 0;
  std::unordered_set<int> victims_;
};

}  // namespace drun::agent
