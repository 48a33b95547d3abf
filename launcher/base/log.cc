#include "launcher/base/log.h"

#include <spdlog/pattern_formatter.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "agent/output/log_files.h"

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

// spdlog patterns treat '%' as a flag character.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result.append(c == '%' ? 2 : 1, c);
  return result;
}

}  // namespace

Log console_log(const LogStyle& style) {
  const std::string node = style.node.empty() ? std::string() : " " + style.node;
  const auto lines = std::make_shared<spdlog::pattern_formatter>(
      escaped(style.invoked_as) + " %H:%M:%S.%e %l" + escaped(node) + ": %v",
      spdlog::pattern_time_type::local, "");
  const auto format = [lines, least = style.level, is_wanted = style.is_wanted](
                          LogLevel level, std::string_view text) -> std::optional<std::string> {
    if (level < least || (is_wanted && !is_wanted(text))) return std::nullopt;
    const spdlog::details::log_msg message("drun", library_level(level),
                                           spdlog::string_view_t(text.data(), text.size()));
    spdlog::memory_buf_t line;
    lines->format(message, line);
    return std::string(line.data(), line.size());
  };
  return Log(format, [](std::string_view line) {
    agent::write_all(STDERR_FILENO, std::string(line) + "\n");
  });
}

}  // namespace drun
