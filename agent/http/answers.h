// core. The HTTP answers of this node's agent. Any client can read them, so they contain no program
// arguments and no environment.
//
//   GET /metrics   Prometheus's text               /livez    200 as long as the agent answers
//   GET /status    `drun status --node --json`,    /readyz   200 while workers run, else 503
//                  of commands only the program
//
// 404 lists the existing pages, 405 the allowed methods. See also
// prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/status/node_status.h"

namespace drun::agent::web {

struct Answer {
  unsigned code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body{};
};

// `target`: a query in it is ignored. `status` is called only if the answer needs it.
Answer answer(std::string_view method, std::string_view target,
              const std::function<NodeStatus()>& status);

// The job's metrics drun_*, in Prometheus's text format, each with HELP and TYPE. Before the first
// world, only those that do not need it. Label values are escaped; bytes that are not UTF-8 become
// U+FFFD.
std::string metrics_text(const NodeStatus& status);

}  // namespace drun::agent::web
