// core. The hosts that a job may use: host lists on the command line, host files, and DeepSpeed's
// selection options.
//
//   --hosts      a,b  a:2,b:2  node[02-04,07]:4  user@host  [fe80::1]:2   (or separated by blanks)
//   --hostfile   the same, one or several per line; then `slots=N`, `max_slots=N` (Open MPI,
//                DeepSpeed), or `host:N` (Hydra); # begins a comment
//   --include    host0@node[1-2]:0,2     use only these hosts or devices
//   --exclude    the same, but leave them out
//
// Each host occurs once, in order of first appearance. If a host is repeated, its slots add up as
// in mpirun; an entry without a number counts as one slot. See mpirun(1) of Open MPI 4 and 5,
// Hydra's host file, deepspeed/launcher/runner.py.
// Errors:  Usage, with the position, the reason and the remedy; also for more than
//          engines::kMostHosts hosts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun::hosts {

// --- One item of a host list: [user@]name[:tail]. The name may contain ranges.
//
// Errors: Usage: "item: reason; remedy".

struct HostItem {
  std::string user{};
  std::vector<std::string> names{};   // not empty; none begins with '-', a prefix of ssh options
  std::optional<std::string> tail{};  // after the ':'
};

Result<HostItem> parse_host_item(std::string_view text);

// Splits at `separators` outside brackets and omits empty parts.
std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view separators);

inline constexpr int kMostSlots = 65536;

// Parses a number from 1 to kMostSlots; absent if it is anything else.
std::optional<int> slot_count(std::string_view text);

// --- The pool

// Maximum number of hosts in a message; ", ..." replaces the rest.
inline constexpr std::size_t kMostShownHosts = 8;

struct PoolHost {
  std::string name{};  // without user, brackets and slots
  std::string user{};  // empty: ssh's default
  std::optional<int> slots{};
  std::vector<int> devices{};  // usable GPUs; empty: all
  bool operator==(const PoolHost&) const = default;
};

using Pool = std::vector<PoolHost>;

Result<Pool> parse_hosts(std::string_view list);
Result<Pool> parse_host_file(std::string_view text);

Result<Pool> included(const Pool& pool, std::string_view choice);
Result<Pool> excluded(const Pool& pool, std::string_view choice);

}  // namespace drun::hosts
