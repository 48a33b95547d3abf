// core. Host lists in the syntax of Slurm and ClusterShell: "node[01-03,07],login,r[1-2]n[1-4]-ib".
//
//          list   = item { ("," | blank) item }            repeated separators count as one
//          item   = { text | "[" range {"," range} "]" }   several groups make a product
//          range  = number | number "-" number [ "/" step ]
//
// Numbers keep the width of the lower bound: n[08-11] is n08 n09 n10 n11. In a product the last
// group varies fastest. Duplicates and order are kept. ClusterShell's operators and @groups are not
// supported. See srun(1), Slurm's src/common/hostlist.c, ClusterShell's nodeset(1).
// Errors:  Usage, with the position, the reason and the remedy; also for more than kMostHosts
//          names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun::engines {

// --- Lists in Slurm's syntax: "0,1,5" or "0-3,6"

// The number of distinct entries in a list of numbers, ranges, and other names ("GPU-<uuid>").
// Absent for malformed entries ("3-1", "4-", "") and above kMostCount.
std::optional<int> size_of_list(std::string_view text);

// Whether `text` is a list, not a count: it contains a comma or a dash.
bool is_list(std::string_view text);

// --- Host lists

inline constexpr std::size_t kMostNameBytes = 255;  // of a host
inline constexpr std::size_t kMostHosts = 65536;

Result<std::vector<std::string>> expand_host_list(std::string_view list);

}  // namespace drun::engines
