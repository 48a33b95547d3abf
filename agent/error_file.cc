#include "agent/error_file.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace drun::agent {
namespace {

using ErrorJson = nlohmann::json;

constexpr int kDeepest = 64;
constexpr double kLatestSeconds = 253402300800.0;  // the year 10000

Error wrong(std::string_view reason) {
  return Error{ErrorCode::Usage, "error file ignored: " + std::string(reason)};
}

// What nests deeper than any real file is not kept: its destruction would be recursive.
Result<ErrorJson> parse(std::string_view text) {
  if (text.size() > kLongestErrorFileBytes) return wrong("it is larger than 1 MiB");
  bool is_too_deep = false;
  const auto limit = [&is_too_deep](int depth, ErrorJson::parse_event_t, ErrorJson&) {
    is_too_deep = is_too_deep || depth > kDeepest;
    return !is_too_deep;
  };
  ErrorJson json = ErrorJson::parse(text, limit, false);
  if (is_too_deep) return wrong("it nests deeper than 64");
  if (json.is_discarded()) return wrong("it is no JSON");
  if (!json.is_object() || !json.contains("message"))
    return wrong("it is no object with a message");
  const ErrorJson& message = json["message"];
  if (!message.is_string() && !message.is_object()) return wrong("its message is no text");
  return json;
}

// Bytes that are no UTF-8 cannot be in parsed JSON, but can be in what drun itself says.
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
  const std::string& text = value.get_ref<const std::string&>();
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return seconds;
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

}  // namespace drun::agent
