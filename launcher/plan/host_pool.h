// core. The hosts that a job may use, as users write them on the command line or in a file, and
// chosen from as DeepSpeed's users do.
//
//   --hosts      a,b  a:2,b:2  node[02-04,07]:4  user@host  [fe80::1]:2   (or with blanks)
//   --hostfile   the same, one or several a line; then `slots=N`, `max_slots=N` (Open MPI,
//                DeepSpeed), or `host:N` (Hydra); # begins a comment
//   --include    host0@node[1-2]:0,2     hosts, or some of their devices
//   --exclude    the same, left out
//
// Shape:   each host once, in the order of first appearance; of a host that is named again the
//          slots add up, as mpirun does it, where one without a number has one.
// Errors:  Usage: the place, the reason, what to write. At most engines::kMostHosts hosts.
// Owner:   values; copy freely.   Thread: any.
// Source:  mpirun(1) of Open MPI 4 and 5, Hydra's host file, deepspeed/launcher/runner.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

// core. One item of a list of hosts: [user@]name[:tail], where the name may have ranges.
// Errors:  Usage: "item: reason; what to write".   Thread: any.

namespace drun::hosts {

struct HostItem {
  std::string user{};
  std::vector<std::string> names{};   // at least one; none begins with '-', which ssh would obey
  std::optional<std::string> tail{};  // after the ':'
};

Result<HostItem> parse_host_item(std::string_view text);

// At `separators`, but for those within brackets; empty parts are left out.
std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view separators);

inline constexpr int kMostSlots = 65536;

// 1 to kMostSlots. Absent: it is no such number.
std::optional<int> slot_count(std::string_view text);

}  // namespace drun::hosts

namespace drun::hosts {

// In one sentence; ", ..." stands for the rest.
inline constexpr std::size_t kMostShownHosts = 8;

struct PoolHost {
  std::string name{};  // without user, brackets and slots
  std::string user{};  // empty: as ssh's configuration says
  std::optional<int> slots{};
  std::vector<int> devices{};  // its GPUs that may be used; empty: all
  bool operator==(const PoolHost&) const = default;
};

using Pool = std::vector<PoolHost>;

Result<Pool> parse_hosts(std::string_view list);
Result<Pool> parse_host_file(std::string_view text);

Result<Pool> included(const Pool& pool, std::string_view choice);
Result<Pool> excluded(const Pool& pool, std::string_view choice);

}  // namespace drun::hosts
