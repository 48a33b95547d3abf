// core. What this node's agent answers over HTTP, to anyone who reaches the port: no arguments of
// programs and nothing of their environment.
//
//   GET /metrics   Prometheus's text               /livez    200 as long as the agent answers
//   GET /status    `drun status --node --json`,    /readyz   200 while workers run, else 503
//                  of commands only the program
//
// Errors:  none: 404 names the pages there are, 405 what may be asked.   Thread: any.
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

// `target`: with or without a query, which means nothing. `status` is asked when it is wanted.
Answer answer(std::string_view method, std::string_view target,
              const std::function<NodeStatus()>& status);

}  // namespace drun::agent::web
