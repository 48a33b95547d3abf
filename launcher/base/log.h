// edge. drun's own log lines: their format, by spdlog. The only place that sees it.
//
// Text:    "drun 14:03:07.123 warning node 1: message", local time; in elastic jobs, whose nodes
//          change their numbers, the host's name instead ("warning node01: message"). It is left
//          out while it is not known or when there is only one node.
// Writer:  stderr, at once: a blocked stderr blocks. Before an event loop runs that is right; an
//          agent leads its lines elsewhere with Log::via().
// Owner:   the Log may outlive the style; copies share one format.
// Thread:  the io_context's only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/log.h"

namespace drun {

struct LogStyle {
  std::string invoked_as = "drun";
  LogLevel level = LogLevel::Info;                         // and above
  std::string node{};                                      // "node 1"
  std::function<bool(std::string_view text)> is_wanted{};  // null: all are
};

Log console_log(const LogStyle& style);

}  // namespace drun
