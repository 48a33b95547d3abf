// core. The interface for log messages. launcher/base/log.cc formats the lines with spdlog; tests
// keep them in a vector. Copies share the sink. Use it on the io_context's thread only.
//
// Text:    "message key=value ...", one line for each event, never a secret. The format adds level,
//          time and node or rank.
// Writers: via() redirects a Log that has a format. drun writes directly to stderr until an agent
//          has a console for the lines.
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

// A message as an action of a state machine.
struct LogLine {
  LogLevel level = LogLevel::Info;
  std::string text{};
};

class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;
  // A whole line without its newline; absent: write nothing.
  using Format = std::function<std::optional<std::string>(LogLevel, std::string_view)>;
  using Writer = std::function<void(std::string_view line)>;

  Log() = default;  // writes nothing
  explicit Log(Sink sink) : sink_(std::move(sink)) {}
  Log(Format format, Writer writer) : format_(std::move(format)) {
    sink_ = [lines = format_, writer = std::move(writer)](LogLevel level, std::string_view text) {
      if (const std::optional<std::string> line = lines(level, text)) writer(*line);
    };
  }

  // A log that writes the same lines to `writer`. Without a format, returns an unchanged copy.
  Log via(Writer writer) const { return format_ ? Log(format_, std::move(writer)) : *this; }

  void debug(std::string_view text) const { write(LogLevel::Debug, text); }
  void info(std::string_view text) const { write(LogLevel::Info, text); }
  void warning(std::string_view text) const { write(LogLevel::Warning, text); }
  void error(std::string_view text) const { write(LogLevel::Error, text); }
  void write(LogLevel level, std::string_view text) const {
    if (sink_) sink_(level, text);
  }
  void write(const LogLine& line) const { write(line.level, line.text); }

 private:
  Format format_;
  Sink sink_;
};

// Limits the number of lines a second, for example about bad connections, and counts the omitted
// ones.
class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit LogLimit(std::size_t most_per_second = 5) : most_per_second_(most_per_second) {}

  // Whether another line may be written.
  bool allows(Time now) {
    if (written_ == 0 || now - second_ >= std::chrono::seconds(1)) {
      second_ = now;
      written_ = 0;
    }
    const bool is_allowed = written_ < most_per_second_;
    ++(is_allowed ? written_ : left_out_);
    return is_allowed;
  }
  // " left_out=7": the number of lines omitted since the last allowed one, to be appended to the
  // next line. Empty if none.
  std::string left_out() {
    const std::size_t count = std::exchange(left_out_, 0);
    return count == 0 ? "" : " left_out=" + std::to_string(count);
  }

 private:
  std::size_t most_per_second_;
  Time second_{};
  std::size_t written_ = 0;
  std::size_t left_out_ = 0;
};

}  // namespace drun
