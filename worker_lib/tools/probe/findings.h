// core. From the reports of all nodes to the problems: a line each, with its remedy.
//
// Shape:   problems before warnings. A problem is what makes jobs fail, hang or crawl; a warning is
//          what may.
// Rule:    where nodes differ, the few are named, not the many; of two, the one that has less.
// Owner:   values; copy freely.   Thread: any.
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
std::string or_none(const std::string& text);                       // "none" for nothing

// --- Problems of single nodes

struct Finding {
  bool is_problem = false;
  std::vector<int> nodes{};  // whom it is about
  std::string what{};        // "node 2 (gpu2) has nofile 1024, the others 1048576"
  std::string remedy{};      // "raise it: ulimit -n, ..."
  bool operator==(const Finding&) const = default;
};

// By node rank; absent: it has not told in time.
using Reports = std::vector<std::optional<NodeReport>>;

std::vector<Finding> findings_of(const Reports& reports);

// The node that a job does better without: the one it is about, of two the later one, of more
// node 0, which stands for all.
int node_at_fault(const Finding& finding);

bool has_problem(const std::vector<Finding>& findings);

// Of those, what is about `node` (and not about most nodes).
std::vector<Finding> findings_about(int node, const std::vector<Finding>& findings);

// "node 2 (gpu2)"; "node 2" where it has told no name.
std::string node_name(const Reports& reports, int node);
// "nodes 0-2, 7"; "node 2 (gpu2)" of one.
std::string node_names(const Reports& reports, const std::vector<int>& nodes);

// --- Nodes that differ from the others in one property

struct Property {
  std::string name{};  // "nofile", "MTU"
  bool is_problem = false;
  // Only a node that has less than most is reported.
  bool is_less_worse = false;
  // Of a number, what fraction of the others' is still as good.
  double tolerance = 1.0;
  std::string remedy{};
  std::function<std::string(const NodeFacts&)> text{};  // empty: not known there
  std::function<double(const NodeFacts&)> number{};     // absent: texts are compared
};

// A finding for each value that is not the one that most nodes have.
std::vector<Finding> differences(const Reports& reports, const Property& property);

// --- Problems between nodes: unreachable nodes, names, slow pairs
//
// A node is reported once if all attempts to reach it failed, or all of its own attempts. A node is
// slow if its best pair is slower than half of the median node's best pair. Otherwise, a pair is
// slow if it is slower than half of that.

void add_link_findings(std::vector<Finding>& findings, const Reports& reports);

// The median node's best pair; 0 with no pairs.
double usual_rate(const Reports& reports);

}  // namespace drun::probe
