// edge. The processor time that this node's processes wanted and did not get: taken by the
// hypervisor (steal in /proc/stat), or withheld by a cgroup's CPU limit (cpu.stat of this process's
// cgroup and those above it, version 2 and 1). Also whether heat throttled a processor
// (thermal_throttle in sysfs). Files that cannot be read count as nothing.
//
// Cost:    about 0.1 ms, and 5 us per processor where thermal_throttle exists.
// Thread:  any; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/job/slow_rank.h"

namespace drun::agent {

// Totals since the system's or the cgroup's start.
struct ProcessorTimes {
  std::uint64_t busy_us = 0;
  std::uint64_t stolen_us = 0;
  std::uint64_t throttled_us = 0;
  std::uint64_t used_us = 0;  // by the cgroup with the limit
  std::uint64_t heat_events = 0;
  bool operator==(const ProcessorTimes&) const = default;
};

// Adds the first line of /proc/stat: "cpu  user nice system idle iowait irq softirq steal ...", in
// 1/`ticks_per_second` s.
void read_proc_stat(std::string_view text, long ticks_per_second, ProcessorTimes& times);
// Adds a cgroup's cpu.stat: usage_usec and throttled_usec, or throttled_time in ns of version 1.
void read_cpu_stat(std::string_view text, ProcessorTimes& times);

// Sets the shares of the time between two readings in `speed`. They are 0 if less than half of one
// processor was wanted. `speed.length` must be set.
void compare(const ProcessorTimes& before, const ProcessorTimes& now, NodeSpeed& speed);

class Processors {
 public:
  // `root`: the directory that contains /proc and /sys.
  explicit Processors(std::string root = "");
  ProcessorTimes read() const;

 private:
  std::string root_;
  std::vector<std::string> cpu_stats_;  // files
  std::vector<std::string> heat_;       // likewise
};

}  // namespace drun::agent
