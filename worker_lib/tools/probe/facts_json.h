// core. Reports and findings as JSON, which probes exchange through the store and `drun doctor
// --json` prints.
//
// Limits:  64 KiB per report. Larger or invalid reports are Refused.
// Thread:  any.
#pragma once

#include <optional>
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
std::string whole_json(const std::vector<std::optional<NodeReport>>& reports,
                       const std::vector<Finding>& findings);

}  // namespace drun::probe
