// core. Evidence as `drun stacks` gets it from an agent: one JSON object, schema "drun.stacks/1"
// (docs/guide/running-jobs.md), newline at the end.
// Errors:  parse: Refused; it is not what this drun understands.   Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/job/evidence.h"

namespace drun::agent {

// Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string evidence_json(const Evidence& evidence, const std::string& run_id);

Result<Evidence> parse_evidence_json(std::string_view json);

}  // namespace drun::agent
