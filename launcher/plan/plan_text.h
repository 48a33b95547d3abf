// core. The plan as text and as JSON: the output of --dry-run.
//
// JSON:    schema "drun.plan/1"; docs/reference/json.md describes its fields.
#pragma once

#include <string>

#include "launcher/plan/plan.h"

namespace drun {

// Ends with a newline. Lines are not wrapped.
std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

}  // namespace drun
