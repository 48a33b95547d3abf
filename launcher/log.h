// edge. Where drun's own log lines go: stderr, through spdlog. The only place that sees it.
//
// Text:    "drun 14:03:07.123 warning node 1: message", local time; the node is left out while it
//          is not known or when there is only one.
// Owner:   the Log may outlive the style; copies share one sink.
// Thread:  the io_context's only. Lines are written at once; a blocked stderr blocks.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/log.h"

namespace drun {

struct LogStyle {
  std::string invoked_as = "drun";
  LogLevel level = LogLevel::Info;  // and above
  std::optional<int> node_rank{};
};

Log console_log(const LogStyle& style);

}  // namespace drun
