// core. How edges report what happens without knowing where it goes: launcher/base/log.cc formats
// lines with spdlog, tests keep them in a vector.
//
// Text:    "message key=value ..."; one event, one line; secrets never. Level, time and node/rank
//          are added by the format.
// Writers: a Log that has a format can be led elsewhere with via(): drun's lines go to stderr
//          directly until an agent has a console for them.
// Owner:   a value; copies share the sink.   Thread: the io_context's only.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace drun {

enum class LogLevel { Debug, Info, Warning, Error };

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;
  // A whole line without its newline; absent: nothing is to be written.
  using Format = std::function<std::optional<std::string>(LogLevel, std::string_view)>;
  using Writer = std::function<void(std::string_view line)>;

  Log() = default;  // writes nothing
  explicit Log(Sink sink) : sink_(std::move(sink)) {}
  Log(Format format, Writer writer) : format_(std::move(format)) {
    sink_ = [lines = format_, writer = std::move(writer)](LogLevel level, std::string_view text) {
      if (const std::optional<std::string> line = lines(level, text)) writer(*line);
    };
  }

  // The same lines to `writer`. A log without a format stays as it is.
  Log via(Writer writer) const { return format_ ? Log(format_, std::move(writer)) : *this; }

  void debug(std::string_view text) const { write(LogLevel::Debug, text); }
  void info(std::string_view text) const { write(LogLevel::Info, text); }
  void warning(std::string_view text) const { write(LogLevel::Warning, text); }
  void error(std::string_view text) const { write(LogLevel::Error, text); }
  void write(LogLevel level, std::string_view text) const {
    if (sink_) sink_(level, text);
  }

 private:
  Format format_;
  Sink sink_;
};

// core. Keeps a flood of bad connections from becoming a flood of lines: so many a second, and then
// how many were left out.
//
// Owner:   a value, beside the Log it protects.   Thread: any, one at a time.   Errors: none.

class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit LogLimit(std::size_t most_per_second = 5) : most_per_second_(most_per_second) {}

  // May another line be written?
  bool allows(Time now);
  // " left_out=7": lines that were not allowed since the last that was; to be put at its end. Empty
  // if none.
  std::string left_out();

 private:
  std::size_t most_per_second_;
  Time second_{};
  std::size_t written_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace drun
