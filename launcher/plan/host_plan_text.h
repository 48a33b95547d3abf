// core. The plan of a job over ssh as text and as JSON, for --dry-run and --explain.
#pragma once

#include <string>

#include "launcher/plan/host_plan.h"

namespace drun::hosts {

std::string host_plan_text(const HostPlan& plan);
std::string host_plan_json(const HostPlan& plan);

}  // namespace drun::hosts
