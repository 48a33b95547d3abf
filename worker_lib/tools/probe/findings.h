// core. Determines problems from the reports of all nodes: one line each, with its remedy.
//
// Order:   problems before warnings. A problem makes jobs fail, hang or run slowly; a warning may
//          do so.
// Rule:    if nodes differ, the minority is named; of two nodes, the one that has less.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// --- Numbers in readable form

std::string bytes_text(std::uint64_t bytes);                        // "64 MiB", "1.5 TiB"
std::string limit_text(const std::optional<std::uint64_t>& limit);  // "1024", "unlimited"
std::string bytes_limit_text(const std::optional<std::uint64_t>& limit);
std::string rate_text(double gbytes_per_s);              // "11.2 GB/s", "0.03 GB/s"
std::string time_text(double seconds);                   // "35 us", "1.2 ms", "3.5 s"
std::string clock_text(double ahead_s, double bound_s);  // "+1.2 ms +-0.1 ms", "0"
std::string or_none(const std::string& text);            // "none" if it is empty

// --- Problems

struct Finding {
  bool is_problem = false;
  std::vector<int> nodes{};  // the affected nodes
  std::string what{};        // "node 2 (gpu2) has nofile 1024, the others 1048576"
  std::string remedy{};      // "raise it: ulimit -n, ..."
  bool operator==(const Finding&) const = default;
};

// By node rank; absent: no report in time.
using Reports = std::vector<std::optional<NodeReport>>;

std::vector<Finding> findings_of(const Reports& reports);

// The node that a job should exclude: the affected node; the later one of two; node 0 if there are
// more.
int node_at_fault(const Finding& finding);

bool has_problem(const std::vector<Finding>& findings);

// The findings that affect `node` (and not most nodes).
std::vector<Finding> findings_about(int node, const std::vector<Finding>& findings);

// "node 2 (gpu2)"; "node 2" if its name is unknown.
std::string node_name(const Reports& reports, int node);
// "nodes 0-2, 7"; "node 2 (gpu2)" for one node.
std::string node_names(const Reports& reports, const std::vector<int>& nodes);

}  // namespace drun::probe
