// core. Host lists as Slurm and ClusterShell write them: "node[01-03,07],login,r[1-2]n[1-4]-ib".
//
//          list   = item { ("," | blank) item }            several separators in a row are one
//          item   = { text | "[" range {"," range} "]" }   several groups make a product
//          range  = number | number "-" number [ "/" step ]
//
// Shape:   numbers keep the width of the low bound: n[08-11] is n08 n09 n10 n11. A product goes
//          through its last group first. Doubles stay, order stays.
// Errors:  Usage: the place, the reason, what to write. At most kMostHosts names.  Never throws.
// Source:  srun(1), src/common/hostlist.c, ClusterShell's nodeset(1); its operators and @groups
//          are not taken.
// Thread:  any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

// core. Lists as Slurm writes them: "0,1,5" as well as "0-3,6".
// Errors:  absent: this is no such list.   Thread: any.

namespace drun::engines {

// How many things a list names, each once: numbers, ranges of numbers, and names of another kind
// ("GPU-<uuid>"). Absent for what is neither ("3-1", "4-", ""), and beyond kMostCount.
std::optional<int> size_of_list(std::string_view text);

// Whether it is one, and not a number of things: there is a comma or a dash in it.
bool is_list(std::string_view text);

}  // namespace drun::engines

namespace drun::engines {

inline constexpr std::size_t kMostNameBytes = 255;  // of a host
inline constexpr std::size_t kMostHosts = 65536;

Result<std::vector<std::string>> expand_host_list(std::string_view list);

}  // namespace drun::engines
