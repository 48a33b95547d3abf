// core. Determines problems from the reports of all nodes: one line each, with its remedy.
//
// Order:   problems before warnings. A problem makes jobs fail, hang or run slowly; a warning may
//          do so.
// Rule:    if nodes differ, the minority is named; of two nodes, the one that has less.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker_lib/tools/probe/facts.h"

namespace drun::probe {

// --- Numbers in readable form

std::string bytes_text(std::uint64_t bytes);                        // "64 MiB", "1.5 TiB"
std::string limit_text(const std::optional<std::uint64_t>& limit);  // "1024", "unlimited"
std::string rate_text(double gbytes_per_s);                         // "11.2 GB/s", "0.03 GB/s"
std::string time_text(double seconds);                              // "35 us", "1.2 ms", "3.5 s"
std::string clock_text(double ahead_s, double bound_s);             // "+1.2 ms +-0.1 ms", "0"
std::string or_none(const std::string& text);                       // "none" if it is empty

// --- Problems of single nodes

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

// --- Nodes that differ from the others in one property

struct Property {
  std::string name{};  // "nofile", "MTU"
  bool is_problem = false;
  // Only a node that has less than most is reported.
  bool is_less_worse = false;
  // For a number: the fraction of the others' value that is still acceptable.
  double tolerance = 1.0;
  std::string remedy{};
  std::function<std::string(const NodeFacts&)> text{};  // empty: unknown on that node
  std::function<double(const NodeFacts&)> number{};     // absent: texts are compared
};

// One finding per value that differs from the most frequent one.
std::vector<Finding> differences(const Reports& reports, const Property& property);

// --- Problems between nodes: unreachable nodes, names, slow pairs
//
// A node is reported once if all attempts to reach it failed, or all attempts from it. A node is
// slow if its best pair is slower than half of the median node's best pair. Otherwise, a pair is
// slow if it is slower than half of that.

void add_link_findings(std::vector<Finding>& findings, const Reports& reports);

// The rate of the median node's best pair; 0 without pairs.
double usual_rate(const Reports& reports);

}  // namespace drun::probe
