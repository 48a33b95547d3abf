// core. All nodes in a table, what is the same everywhere in a line, then the findings.
// Thread: any.
#pragma once

#include <string>
#include <vector>

#include "worker_lib/tools/probe/findings.h"

namespace drun::probe {

std::string table_text(const Reports& reports, const std::vector<Finding>& findings);

// "problem  node 2 (gpu2) has nofile 1024, the others 1048576\n         raise it: ..."
std::string findings_text(const std::vector<Finding>& findings);

}  // namespace drun::probe
