#include "agent/output/console_lines.h"

#include <nlohmann/json.hpp>
#include <random>

#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

const WallTime kTime(std::chrono::microseconds(1'700'000'000'123'456));
const LineOrigin kOrigin{.node_rank = 1,
                         .host = "b",
                         .rank = 5,
                         .local_rank = 1,
                         .role = "trainer",
                         .round = 2,
                         .is_stderr = true};

std::vector<nlohmann::json> objects_in(std::string_view text) {
  std::vector<nlohmann::json> objects;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    REQUIRE(end != text.npos);
    objects.push_back(nlohmann::json::parse(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  return objects;
}

std::vector<nlohmann::json> objects_of(std::string_view bytes, std::size_t piece = SIZE_MAX) {
  JsonLines lines(kOrigin);
  std::string out;
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    lines.take(next, kTime, out);
    bytes.remove_prefix(next.size());
  }
  lines.end_of_stream(kTime, out);
  return objects_in(out);
}

}  // namespace

TEST_CASE("a line becomes a JSON object with its time and origin") {
  const auto objects = objects_of("one\ntwo");
  REQUIRE(objects.size() == 2);
  CHECK(objects[0] == nlohmann::json{{"time", "2023-11-14T22:13:20.123456Z"},
                                     {"node_rank", 1},
                                     {"host", "b"},
                                     {"rank", 5},
                                     {"local_rank", 1},
                                     {"role", "trainer"},
                                     {"round", 2},
                                     {"stream", "stderr"},
                                     {"text", "one"}});
  CHECK(objects[1]["text"] == "two");
}

TEST_CASE("every ASCII byte is preserved in a JSON line at any position") {
  for (int code = 0; code < 128; ++code) {
    if (code == '\n') continue;
    for (std::size_t at = 0; at < 20; ++at) {
      std::string text(20, 'x');
      text[at] = static_cast<char>(code);
      INFO("code " << code << " at " << at);
      REQUIRE(objects_of(text + "\n").at(0)["text"] == text);
    }
  }
}

TEST_CASE("UTF-8 is not changed in a JSON line") {
  const std::string text = "ä € 😀 \xEF\xBF\xBF \xF4\x8F\xBF\xBF";
  const auto object = objects_of(text + "\n").at(0);
  CHECK(object["text"] == text);
  CHECK_FALSE(object.contains("base64"));
}

TEST_CASE(
    "a line with invalid UTF-8 has replacement characters in its text and its exact bytes in "
    "base64") {
  const std::string bad = GENERATE(values<std::string>(
      {"\xff", "\xc3", "\xc3(", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
       "\xf8\x88\x80\x80\x80", "\x80", "\xe2\x82", "\xf0\x9f\x98"}));
  const std::string text = "before " + bad + " after";
  const auto object = objects_of(text + "\nnext\n").at(0);
  const std::string shown = object["text"];
  CHECK(shown.starts_with("before \xEF\xBF\xBD"));
  CHECK(shown.ends_with(" after"));
  CHECK(object["base64"] == base64(text));
}

TEST_CASE("JSON lines do not depend on how the bytes are split") {
  std::mt19937 random(4);
  std::string bytes;
  for (int i = 0; i < 3000; ++i) {
    constexpr std::string_view kBytes = "abc\n\r\"\\\t\x01\xc3\xa4\xff";
    bytes.push_back(kBytes[random() % kBytes.size()]);
  }
  const auto whole = objects_of(bytes);
  const std::size_t piece = GENERATE(1U, 2U, 7U, 100U);
  CHECK(objects_of(bytes, piece) == whole);
}

TEST_CASE("a line without an end is written as partial objects in bounded memory") {
  std::string bytes(1, 'x');  // whole characters, at an odd place
  while (bytes.size() < 3 * kLongestJsonTextBytes) bytes += "\u00e4";
  const std::string end = GENERATE("y\n", "\n", "");
  const std::size_t piece = GENERATE(std::size_t{65536}, kLongestJsonTextBytes + 1);
  const auto objects = objects_of(bytes + end, piece);
  REQUIRE(objects.size() > 2);
  std::string text;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    CHECK(objects[i].contains("partial") == (i + 1 < objects.size()));
    CHECK_FALSE(objects[i].contains("base64"));
    text += objects[i]["text"].get<std::string>();
  }
  CHECK(text == bytes + end.substr(0, end.find('\n')));
}

TEST_CASE("a timestamp precedes each line and its label, if any") {
  const bool is_labeled = GENERATE(false, true);
  OutputSpec spec;
  spec.has_timestamps = true;
  FormattedLines lines(1, form_of(spec, kOrigin, is_labeled));
  LineQueue queue;
  lines.take("one\ntwo\nhal", kTime, queue);
  lines.take("f\n", kTime + std::chrono::seconds(1), queue);
  lines.end_of_stream(kTime, queue);
  const std::string label = is_labeled ? "[trainer1]:" : "";
  CHECK(queue.bytes() == "2023-11-14T22:13:20.123456Z " + label + "one\n" +
                             "2023-11-14T22:13:20.123456Z " + label + "two\n" +
                             "2023-11-14T22:13:21.123456Z " + label + "half\n");
}

}  // namespace drun::agent
