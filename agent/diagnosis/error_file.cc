#include "agent/diagnosis/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <utility>

#include "agent/output/log_files.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace drun::agent {
namespace {

using ErrorJson = nlohmann::json;

constexpr int kDeepest = 64;
constexpr double kLatestSeconds = 253402300800.0;  // the year 10000

Error wrong(std::string_view reason) {
  return Error{ErrorCode::Usage, "error file ignored: " + std::string(reason)};
}

// The code unit of an escape: 0xdcff of "\\udcff". Absent: there is no such escape.
std::optional<unsigned> code_unit_at(std::string_view text, std::size_t at) {
  constexpr std::size_t kEscapeBytes = 6;
  const std::string_view escape = text.substr(std::min(at, text.size()), kEscapeBytes);
  if (escape.size() < kEscapeBytes || !escape.starts_with("\\u")) return std::nullopt;
  unsigned unit = 0;
  const auto [end, ec] = std::from_chars(escape.data() + 2, escape.data() + kEscapeBytes, unit, 16);
  return ec == std::errc() && end == escape.data() + kEscapeBytes ? std::optional(unit)
                                                                  : std::nullopt;
}

// Python has a lone surrogate for each byte of a file name that is not UTF-8, and writes it as an
// escape, which other parsers reject. It becomes U+FFFD.
std::string without_lone_surrogates(std::string_view text) {
  std::string valid;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t size = text[at] == '\\' ? 2 : 1;
    if (const std::optional<unsigned> unit = code_unit_at(text, at)) {
      const unsigned next = code_unit_at(text, at + 6).value_or(0);
      const bool is_pair = *unit >= 0xd800 && *unit < 0xdc00 && next >= 0xdc00 && next < 0xe000;
      size = is_pair ? 12 : 6;
      if (*unit >= 0xd800 && *unit < 0xe000 && !is_pair) {
        valid += "\\ufffd";
        at += size;
        continue;
      }
    }
    valid += text.substr(at, size);
    at += size;
  }
  return valid;
}

// Rejects text that nests deeper than any real file, because its destruction would be recursive.
Result<ErrorJson> parse(std::string_view text) {
  if (text.size() > kLongestErrorFileBytes) return wrong("it is larger than 1 MiB");
  bool is_too_deep = false;
  const auto limit = [&is_too_deep](int depth, ErrorJson::parse_event_t, ErrorJson&) {
    is_too_deep = is_too_deep || depth > kDeepest;
    return !is_too_deep;
  };
  ErrorJson json = ErrorJson::parse(without_lone_surrogates(text), limit, false);
  if (is_too_deep) return wrong("it nests deeper than 64");
  if (json.is_discarded()) return wrong("it is no JSON");
  if (!json.is_object() || !json.contains("message"))
    return wrong("it is no object with a message");
  const ErrorJson& message = json["message"];
  if (!message.is_string() && !message.is_object()) return wrong("its message is no text");
  return json;
}

// Parsed JSON is always UTF-8, but drun's own messages may not be.
std::string dump(const ErrorJson& json) {
  return json.dump(-1, ' ', false, ErrorJson::error_handler_t::replace);
}

std::string text_in(const ErrorJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : dump(*found);
}

std::optional<double> seconds_in(const ErrorJson& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  return whole_number<double>(value.get_ref<const std::string&>());
}

std::optional<WallTime> time_in(const ErrorJson& object) {
  const auto found = object.find("timestamp");
  if (found == object.end()) return std::nullopt;
  const std::optional<double> seconds = seconds_in(*found);
  if (!seconds || !(*seconds > 0 && *seconds < kLatestSeconds)) return std::nullopt;
  return WallTime(std::chrono::microseconds(std::llround(*seconds * 1e6)));
}

}  // namespace

Result<ErrorRecord> parse_error_record(std::string_view text) {
  const Result<ErrorJson> json = parse(text);
  if (!json) return json.error();
  const ErrorJson& message = (*json)["message"];
  if (message.is_string())
    return ErrorRecord{
        .message = message.get<std::string>(), .traceback = {}, .time = time_in(*json)};
  const auto extra = message.find("extraInfo");
  const ErrorJson& info = extra != message.end() && extra->is_object() ? *extra : message;
  return ErrorRecord{.message = text_in(message, "message"),
                     .traceback = text_in(info, "py_callstack"),
                     .time = time_in(info)};
}

Result<std::string> with_error_code(std::string_view text, int exit_code) {
  Result<ErrorJson> json = parse(text);
  if (!json) return json.error();
  ErrorJson& message = (*json)["message"];
  if (message.is_object()) message["errorCode"] = exit_code;
  return dump(*json);
}

std::string format_error_record(const ErrorRecord& record) {
  ErrorJson info = ErrorJson::object();
  info["py_callstack"] = record.traceback;
  if (record.time) {
    const auto since = std::chrono::floor<std::chrono::seconds>(record.time->time_since_epoch());
    info["timestamp"] = std::to_string(since.count());
  }
  ErrorJson json;
  json["message"] = {{"message", record.message}, {"extraInfo", std::move(info)}};
  return dump(json);
}

namespace {

Result<std::string> read_all(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::string();
  struct stat about {};
  if (!fd || ::fstat(fd.get(), &about) != 0) return system_error("read " + path, errno);
  // A worker can put anything there; a FIFO or /dev/zero must not block drun.
  if (!S_ISREG(about.st_mode))
    return Error{ErrorCode::Usage, "error file ignored: " + path + " is no regular file"};
  if (about.st_size > static_cast<off_t>(kLongestErrorFileBytes))
    return Error{ErrorCode::Usage, "error file ignored: " + path + " is larger than 1 MiB"};
  return read_end_of(path, kLongestErrorFileBytes);
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const int links = path.starts_with("/dev/") ? 0 : O_NOFOLLOW;  // /dev/stderr
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | links, 0600));
  const int error_number = fd ? write_all(fd.get(), text) : errno;
  if (error_number != 0) return system_error("write " + path, error_number);
  return {};
}

}  // namespace

Result<std::optional<ErrorRecord>> read_error_file(const std::string& path) {
  if (path.empty()) return std::optional<ErrorRecord>();
  const Result<std::string> text = read_all(path);
  if (!text) return text.error();
  if (text->empty()) return std::optional<ErrorRecord>();
  Result<ErrorRecord> record = parse_error_record(*text);
  if (!record) return with_context(record.error(), path);
  return std::optional<ErrorRecord>(std::move(*record));
}

Result<void> pass_on_error_file(const std::string& workers, const std::string& own, int exit_code) {
  if (own.empty() || workers.empty()) return {};
  const Result<std::string> text = read_all(workers);
  if (!text) return text.error();
  if (text->empty()) return {};
  const Result<std::string> with_code = with_error_code(*text, exit_code);
  if (!with_code) return with_context(with_code.error(), workers);
  return write_file(own, *with_code);
}

Result<void> write_error_file(const std::string& own, const ErrorRecord& record) {
  if (own.empty()) return {};
  return write_file(own, format_error_record(record));
}

}  // namespace drun::agent
