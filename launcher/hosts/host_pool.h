// core. The hosts that a job may use, and the number of workers on each: host lists on the command
// line, host files, and DeepSpeed's selection options.
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

#include "launcher/cli/options.h"
#include "rendezvous/base/result.h"

namespace drun::hosts {

inline constexpr int kMostSlots = 65536;

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

// --- The number of workers on each host, and which hosts are nodes of the job
//
// A host has as many slots as its entry specifies, or as devices selected on it, else one.
//   -np N           fills the hosts' slots in order; --map-by=node: one each in turn
//   --nproc-per-node=N, --map-by=ppr:N:node      N on each host, up to -np in total
//   neither         each host its slots; without slots, the number that its agent determines
// More workers than slots require --oversubscribe. Hosts without workers are left out. Ranks on a
// host are always consecutive, because worlds consist of nodes (mpirun's --rank-by=slot). Errors:
// Usage, with the requested and the available number.

struct SpreadRequest {
  std::optional<int> np{};
  std::optional<int> per_node{};   // --nproc-per-node=N
  bool has_per_node_word = false;  // --nproc-per-node=gpu: the agent counts
  MapBy map_by{};
  bool oversubscribe = false;
};

struct Share {
  PoolHost host{};
  std::optional<int> workers{};  // absent: the agent counts
  bool operator==(const Share&) const = default;
};

Result<std::vector<Share>> spread(const Pool& pool, const SpreadRequest& wish);

}  // namespace drun::hosts
