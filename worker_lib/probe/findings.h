// core. From what all nodes have told to what is wrong: a line each, with its remedy.
//
// Shape:   problems before warnings. A problem is what makes jobs fail, hang or crawl; a warning is
//          what may.
// Rule:    where nodes differ, the few are named, not the many; of two, the one that has less.
// Owner:   values; copy freely.   Thread: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker_lib/probe/facts.h"

namespace drun::probe {

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

}  // namespace drun::probe
