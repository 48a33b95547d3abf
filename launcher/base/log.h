// edge. The log of drun itself, written by spdlog. No other file includes spdlog.
//
// A line reads "drun 14:03:07.123 warning node 1: message", in local time. In elastic jobs, whose
// nodes change ranks, the host name replaces the rank ("warning node01: message"). The node is left
// out if it is unknown or the only one.
//
// Writes go to stderr at once and block while stderr blocks. This is acceptable before an event
// loop runs; an agent redirects its log with Log::via(). A Log may outlive its LogStyle, and copies
// share one formatter. Use it in the thread of the io_context only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/log.h"

namespace drun {

struct LogStyle {
  std::string invoked_as = "drun";
  LogLevel level = LogLevel::Info;                         // minimum level
  std::string node{};                                      // "node 1"
  std::function<bool(std::string_view text)> is_wanted{};  // null: every line is
};

Log console_log(const LogStyle& style);

}  // namespace drun
