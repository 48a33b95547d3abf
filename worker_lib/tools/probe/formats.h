// core. Reports and findings as JSON, which probes exchange through the store and `drun doctor
// --json` prints, and as a table.
//
// Limits:  64 KiB of JSON per report. Larger or invalid reports are Refused.
// Thread:  any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "worker_lib/tools/probe/facts.h"
#include "worker_lib/tools/probe/findings.h"

namespace drun::probe {

std::string to_json(const NodeReport& report);
Result<NodeReport> parse_report(std::string_view text);

std::string to_json(const std::vector<Finding>& findings);
Result<std::vector<Finding>> parse_findings(std::string_view text);

// Everything in one object, indented, with a newline.
std::string whole_json(const Reports& reports, const std::vector<Finding>& findings);

// All nodes in a table, what is the same everywhere in a line, then the findings.
std::string table_text(const Reports& reports, const std::vector<Finding>& findings);
// "problem  node 2 (gpu2) has nofile 1024, the others 1048576\n         raise it: ..."
std::string findings_text(const std::vector<Finding>& findings);

}  // namespace drun::probe
