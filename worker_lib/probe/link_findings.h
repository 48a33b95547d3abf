// core. What is wrong between nodes: who does not reach whom, names, pairs that are slow.
//
// Rule:    where all that tried to reach a node failed, or all that a node tried, that node is
//          named once. A node is slow when its best pair is under half of what the median node's
//          best pair is; else a pair is, when it is under half of that.
// Thread:  any.
#pragma once

#include <vector>

#include "worker_lib/probe/findings.h"

namespace drun::probe {

void add_link_findings(std::vector<Finding>& findings, const Reports& reports);

// The median node's best pair; 0 with no pairs.
double usual_rate(const Reports& reports);

}  // namespace drun::probe
