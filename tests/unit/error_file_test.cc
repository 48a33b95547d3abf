#include "agent/diagnosis/error_file.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

namespace drun::agent {
namespace {

WallTime at_micros(long long micros) { return WallTime(std::chrono::microseconds(micros)); }

}  // namespace

TEST_CASE("message, traceback and time are read from each of torchrun's error file formats") {
  const auto [text, message, traceback, micros] =
      GENERATE(table<std::string, std::string, std::string, long long>({
          {R"({"message":{"message":"ValueError: x","extraInfo":{"py_callstack":"Trace\nback",
             "timestamp":"1690000000"}}})",
           "ValueError: x", "Trace\nback", 1690000000000000},
          {R"({"message":{"message":"m","extraInfo":{"timestamp":1690000000.25}}})", "m", "",
           1690000000250000},
          {R"({"message":"plain","timestamp":1690000001})", "plain", "", 1690000001000000},
          {R"({"message":"plain","timestamp":"1690000001"})", "plain", "", 1690000001000000},
          {R"({"message":"plain"})", "plain", "", 0},
          {R"({"message":{"message":"m"}})", "m", "", 0},
          {R"({"message":{}})", "", "", 0},
          {R"({"message":{"message":null,"extraInfo":null}})", "", "", 0},
          {R"({"message":{"message":["a",1]}})", R"(["a",1])", "", 0},
          {R"({"message":"m","timestamp":"soon"})", "m", "", 0},
          {R"({"message":"m","timestamp":-5})", "m", "", 0},
          {R"({"message":"m","timestamp":1e300})", "m", "", 0},
          {R"({"message":"m","timestamp":"nan"})", "m", "", 0},
          {R"({"message":"m","timestamp":{}})", "m", "", 0},
          // As Python writes the file name b"a\\xff".
          {R"({"message":"a\udcff \\udcff \ud83d\ude00","timestamp":1})",
           "a\xef\xbf\xbd \\udcff \xf0\x9f\x98\x80", "", 1000000},
          {R"({"message":"\ud83d\ud83dx\ud83d"})", "\xef\xbf\xbd\xef\xbf\xbdx\xef\xbf\xbd", "", 0},
      }));
  CAPTURE(text);
  const Result<ErrorRecord> record = parse_error_record(text);
  REQUIRE(record);
  CHECK(record->message == message);
  CHECK(record->traceback == traceback);
  CHECK(record->time == (micros == 0 ? std::nullopt : std::optional(at_micros(micros))));
}

TEST_CASE("an invalid error file is rejected with the reason") {
  const auto [text, reason] = GENERATE(table<std::string, std::string>({
      {"", "no JSON"},
      {"{", "no JSON"},
      {"Traceback", "no JSON"},
      {"{\"message\":\"\xff\"}", "no JSON"},
      {"[]", "no object with a message"},
      {"{}", "no object with a message"},
      {R"({"message":3})", "no text"},
      {R"({"message":[]})", "no text"},
      {R"({"message":")" + std::string(kLongestErrorFileBytes, 'x') + "\"}", "larger than 1 MiB"},
      {R"({"message":)" + std::string(100000, '[') + std::string(100000, ']') + "}", "deeper"},
  }));
  const Result<ErrorRecord> record = parse_error_record(text);
  REQUIRE_FALSE(record);
  CHECK_THAT(record.error().message, ContainsSubstring(reason));
  CHECK_FALSE(with_error_code(text, 1));
}

TEST_CASE("every truncated error file is rejected") {
  const std::string text =
      R"({"message":{"message":"m","extraInfo":{"py_callstack":"t","timestamp":"1"}}})";
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK_FALSE(parse_error_record(text.substr(0, size)));
  CHECK(parse_error_record(text));
}

TEST_CASE("an error file is forwarded with the exit code in its message object") {
  const auto passed = with_error_code(R"({"message":{"message":"m","extraInfo":{}},"more":1})", 42);
  REQUIRE(passed);
  CHECK(nlohmann::json::parse(*passed) ==
        nlohmann::json::parse(
            R"({"message":{"message":"m","extraInfo":{},"errorCode":42},"more":1})"));
  const auto plain = with_error_code(R"({"message":"m","timestamp":1})", 42);
  REQUIRE(plain);
  CHECK(nlohmann::json::parse(*plain) == nlohmann::json::parse(R"({"message":"m","timestamp":1})"));
}

TEST_CASE("an error record that drun writes can be parsed again") {
  const ErrorRecord record{
      .message = "cannot bind", .traceback = "", .time = at_micros(1690000000000000)};
  const auto again = parse_error_record(format_error_record(record));
  REQUIRE(again);
  CHECK(*again == record);
  CHECK(parse_error_record(
      format_error_record({.message = "no UTF-8: \xff", .traceback = {}, .time = {}})));
}

}  // namespace drun::agent
