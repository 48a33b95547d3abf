// edge. Reads what /proc shows of processes (proc(5)).
//
// Errors:  absent, empty or false for texts that are invalid or cannot be read; never throws.
// Thread:  any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drun::agent {

// The beginning of a file in /proc or /sys; empty if it cannot be read.
std::string read_proc_file(const std::string& path, std::size_t most_bytes = 4096);

// --- The processes of a machine

struct ProcessStat {
  int pid = 0;
  char state = '?';
  int parent = 0;
  int group = 0;
  // In 1/100 s (USER_HZ).
  std::uint64_t cpu_ticks = 0;      // used by it and its reaped children
  std::uint64_t started_ticks = 0;  // since boot; with the pid, identifies the process
  bool operator==(const ProcessStat&) const = default;
};

// Now, as in ProcessStat::started_ticks.
std::uint64_t ticks_since_boot();

// Parses /proc/<pid>/stat (proc(5)), in which the name can contain any characters, including blanks
// and parentheses. If the text is invalid up to the group, returns false and leaves `stat`
// unchanged. Missing later fields are 0. Allocates no memory.
bool parse_stat(std::string_view text, ProcessStat& stat);

// Parses the pid, the state and the parent from the beginning of /proc/<pid>/status. If one is
// missing, returns false and leaves `stat` unchanged. The other fields become 0. Allocates no
// memory.
bool parse_status(std::string_view text, ProcessStat& stat);

// The tree of each of `tops`, itself first; at most `most` processes per top. Leaves out processes
// outside these trees.
std::vector<std::vector<ProcessStat>> trees_below(std::span<const int> tops,
                                                  std::span<const ProcessStat> all,
                                                  std::size_t most);

// /proc/<pid>/comm.
std::string process_name(int pid);

// Whether a /proc/<pid>/status text lists a handler for that signal (SigCgt).
bool parse_handles(std::string_view status, int signal);

// The same for a process. Also false if its status cannot be read.
bool handles_signal(int pid, int signal);

// --- Control groups

// A line of /proc/self/cgroup.
struct CgroupEntry {
  std::vector<std::string_view> controllers{};  // empty: version 2
  std::string_view path{};                      // begins with '/'
};
// Leaves out invalid lines. The entries refer to `text`.
std::vector<CgroupEntry> parse_cgroups(std::string_view text);

// The folder of that cgroup, then of those above it, up to the root of the mount.
std::vector<std::string> cgroup_folders(const std::string& mount, std::string_view path);

}  // namespace drun::agent
