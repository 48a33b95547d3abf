#include "launcher/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace drun {
namespace {

spdlog::level::level_enum library_level(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return spdlog::level::debug;
    case LogLevel::Info:
      return spdlog::level::info;
    case LogLevel::Warning:
      return spdlog::level::warn;
    case LogLevel::Error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// '%' is spdlog's own.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result.append(c == '%' ? 2 : 1, c);
  return result;
}

}  // namespace

Log console_log(const LogStyle& style) {
  const auto sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
  const auto logger = std::make_shared<spdlog::logger>("drun", sink);
  logger->set_level(library_level(style.level));
  logger->flush_on(spdlog::level::trace);
  const std::string node =
      style.node_rank ? " node " + std::to_string(*style.node_rank) : std::string();
  logger->set_pattern(escaped(style.invoked_as) + " %H:%M:%S.%e %l" + node + ": %v");
  return Log([logger](LogLevel level, std::string_view text) {
    logger->log(library_level(level), spdlog::string_view_t(text.data(), text.size()));
  });
}

}  // namespace drun
