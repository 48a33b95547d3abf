// Tests the parser of configuration files.
#include "launcher/cli/config_file.h"

#include "tests/support/catch.h"

namespace drun {
namespace {

using Values = std::vector<std::string>;

Values values_of(const std::string& value) {
  CAPTURE(value);
  const Result<std::vector<ConfigEntry>> entries = parse_config("x = " + value + "\n");
  if (!entries) FAIL_CHECK(entries.error().message);
  return entries && entries->size() == 1 ? entries->front().values : Values{"nothing"};
}

std::string error_of(const std::string& text) {
  const Result<std::vector<ConfigEntry>> entries = parse_config(text);
  return entries ? "" : entries.error().message;
}

}  // namespace

TEST_CASE("a configuration file contains names, values and comments") {
  const auto entries = parse_config(
      "# mine\n\n  nnodes=\"1:4\"  # four\r\n\tnproc-per-node\t=\t8\nfilter = [0, 2]\n"
      "tee = [ # of\n  \"0:1\", # rank 0\n\n  '1:2',\n]\nlast_one = true");
  REQUIRE(entries);
  CHECK(*entries == std::vector<ConfigEntry>{{"nnodes", {"1:4"}, 3},
                                             {"nproc-per-node", {"8"}, 4},
                                             {"filter", {"0", "2"}, 5, true},
                                             {"tee", {"0:1", "1:2"}, 6, true},
                                             {"last_one", {"true"}, 11}});
  for (const char* empty : {"", "\n", "# no more", " \t\r\n#\n"})
    CHECK(parse_config(empty).value().empty());
}

TEST_CASE("configuration file values have the same meaning as in TOML") {
  CHECK(values_of("\"a#b, [c] = 'd'\"") == Values{"a#b, [c] = 'd'"});
  CHECK(values_of(R"("q\"\\ \t\n\u00e9\u20AC\U0001f600")") ==
        Values{"q\"\\ \t\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"});
  CHECK(values_of(R"('C:\new "x"')") == Values{R"(C:\new "x")"});
  CHECK(values_of("\"\"") == Values{""});
  CHECK(values_of("''") == Values{""});
  CHECK(values_of("[]").empty());
  CHECK(values_of("[1,]") == Values{"1"});
  CHECK(values_of("false") == Values{"false"});
  const std::pair<const char*, const char*> numbers[] = {
      {"1_000", "1000"}, {"-5", "-5"},           {"+5", "5"},     {"0", "0"},
      {"0x1F", "31"},    {"0o17", "15"},         {"0b101", "5"},  {"0.25", "0.25"},
      {"1e3", "1e3"},    {"-1.5E-2", "-1.5E-2"}, {"1e+3", "1e+3"}};
  for (const auto& [written, meant] : numbers) CHECK(values_of(written) == Values{meant});
}

TEST_CASE("an invalid value is rejected with its line number and name") {
  for (const char* value :
       {"1:4",   "yes",  "True",    "2026-11-23", "10:00", "inf", "nan",  ".5",  "5.",
        "1.e3",  "1__0", "_1",      "1_",         "0x",    "0xg", "--1",  "+-1", "a b",
        "{a=1}", "1 2",  "\"a\" b", "\"a\"\"b\"", "[1] 2", "01",  "1e400"}) {
    CAPTURE(value);
    CHECK_THAT(error_of(std::string("\nx = ") + value), StartsWith("2: x: "));
  }
  CHECK_THAT(error_of("x ="), StartsWith("1: x: no value; write"));
  CHECK_THAT(error_of("x = # 1"), StartsWith("1: x: no value; write"));
  CHECK_THAT(error_of("x = [1, [2]]"), StartsWith("1: x: this is not a value"));
  CHECK_THAT(error_of("x = [1 2]"), ContainsSubstring("missing comma"));
  CHECK_THAT(error_of("x = [,"), StartsWith("1: x: no value; "));
  CHECK_THAT(error_of("x = [1,\n2\n"), StartsWith("3: x: the list has no closing ]"));
  CHECK_THAT(error_of("x = \"\"\"\na\"\"\""),
             ContainsSubstring("multi-line strings are not supported"));
  CHECK_THAT(error_of("x = '''a'''"), ContainsSubstring("multi-line strings are not supported"));
  CHECK_THAT(error_of("x = \"a\ny = 1"), StartsWith("1: x: the string has no closing quote"));
  CHECK_THAT(error_of("x = 'a"), StartsWith("1: x: the string has no closing quote"));
  for (const char* escape : {"\\q", "\\u12", "\\u12g4", "\\ud800", "\\U00110000", "\\u0000", "\\"})
    CHECK_THAT(error_of("x = \"" + std::string(escape) + "\""), StartsWith("1: x: "));
  CHECK_THAT(error_of(std::string("x = \"a\0b\"", 9)), ContainsSubstring("control character"));
  CHECK_THAT(error_of("x = 'a\x7f'"), ContainsSubstring("control character"));
}

TEST_CASE("lines other than NAME = VALUE are rejected") {
  CHECK_THAT(error_of("a = 1\n[nnodes]\n"),
             StartsWith("2: sections are not supported; write NAME"));
  for (const char* line :
       {"nnodes", "= 3", "a.b = 1", "\"a\" = 1", "a b = 1", "\xc3\xa4 = 1", "\r"})
    CHECK_THAT(error_of(line), StartsWith("1: expected NAME = VALUE; write"));
}

}  // namespace drun
