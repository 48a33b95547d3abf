// core. How edges say what happened without knowing who listens: launcher/log.cc hands in spdlog,
// tests a vector.
//
// Text:    "message key=value ..."; one event, one line; secrets never. Level, time and node/rank
//          are added by the sink.
// Owner:   a value; copies share the sink.   Thread: the io_context's only.
#pragma once

#include <functional>
#include <string_view>
#include <utility>

namespace drun {

enum class LogLevel { Debug, Info, Warning, Error };

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  Log() = default;  // says nothing
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  void debug(std::string_view text) const { write(LogLevel::Debug, text); }
  void info(std::string_view text) const { write(LogLevel::Info, text); }
  void warning(std::string_view text) const { write(LogLevel::Warning, text); }
  void error(std::string_view text) const { write(LogLevel::Error, text); }
  void write(LogLevel level, std::string_view text) const {
    if (sink_) sink_(level, text);
  }

 private:
  Sink sink_;
};

}  // namespace drun
