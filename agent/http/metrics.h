// core. An agent's metrics of its job, in Prometheus's text format.
//
// Shape:   families drun_*, each with HELP and TYPE; before the first world only metrics that do
//          not need it. Label values are escaped; bytes that are not UTF-8 become U+FFFD.
// Source:  prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
// Thread:  any.
#pragma once

#include <string>

#include "agent/status/node_status.h"

namespace drun::agent::web {

std::string metrics_text(const NodeStatus& status);

}  // namespace drun::agent::web
