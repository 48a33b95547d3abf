// core. The JSON form of evidence, which `drun stacks` gets from an agent: one object, schema
// "drun.stacks/1" (docs/guide/hangs.md), with a newline at the end.
// Errors:  parse: Refused if the text has another form.
#pragma once

#include <string>
#include <string_view>

#include "agent/stacks/evidence.h"
#include "rendezvous/base/result.h"

namespace drun::agent {

// Bytes that are not UTF-8 become U+FFFD. Never throws.
std::string evidence_json(const Evidence& evidence, const std::string& run_id);

Result<Evidence> parse_evidence_json(std::string_view json);

}  // namespace drun::agent
