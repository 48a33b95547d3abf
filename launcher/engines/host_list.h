// core. The lists of hosts that engines give: Slurm's and ClusterShell's host lists, and the host
// files and lists of PBS and LSF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/engines/engine_facts.h"
#include "rendezvous/base/result.h"

namespace drun::engines {

// --- Lists in Slurm's syntax: "0,1,5" or "0-3,6"

// The number of distinct entries in a list of numbers, ranges, and other names ("GPU-<uuid>").
// Absent for malformed entries ("3-1", "4-", "") and above kMostCount.
std::optional<int> size_of_list(std::string_view text);

// Whether `text` is a list, not a count: it contains a comma or a dash.
bool is_list(std::string_view text);

// --- Host lists in the syntax of Slurm and ClusterShell: "node[01-03,07],login,r[1-2]n[1-4]-ib".
//
//   list   = item { ("," | blank) item }            repeated separators count as one
//   item   = { text | "[" range {"," range} "]" }   several groups make a product
//   range  = number | number "-" number [ "/" step ]
//
// Numbers keep the width of the lower bound: n[08-11] is n08 n09 n10 n11. In a product the last
// group varies fastest. Duplicates and order are kept. ClusterShell's operators and @groups are not
// supported. See srun(1), Slurm's src/common/hostlist.c, ClusterShell's nodeset(1). Errors: Usage,
// with the position, the reason and the remedy; also for more than kMostHosts names.

inline constexpr std::size_t kMostNameBytes = 255;  // of a host
inline constexpr std::size_t kMostHosts = 65536;

Result<std::vector<std::string>> expand_host_list(std::string_view list);

// --- Host files and host lists of PBS and LSF, which repeat a host for each of its slots
//
// The parsers return nullopt for an empty list, an invalid name or number, and too many entries.

struct HostSlots {
  std::string host{};
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

struct SlotList {
  std::vector<HostSlots> hosts{};  // unique, in order of first appearance
  std::string from{};              // the variable with the list or file name
};

// One slot per word.
std::optional<SlotList> slots_from_words(std::string_view text, std::string from);
// "hostA 4 hostB 2".
std::optional<SlotList> slots_from_pairs(std::string_view text, std::string from);

// Reads the file named by the variable `name`. If it cannot be read or lists no host, returns
// nullopt and records the error.
std::optional<SlotList> slots_from_file(Reading& reading, const FileText& file_text,
                                        std::string_view name);

// Sets the number of nodes, the master address and, if node_rank is set, this node's slots. Records
// an error for a rank beyond the list.
void take_hosts(Reading& reading, const SlotList& list, Facts& facts);

}  // namespace drun::engines
