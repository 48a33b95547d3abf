#include "launcher/hosts/hand_over.h"

#include <random>

#include "launcher/hosts/marked_lines.h"
#include "tests/support/catch.h"
#include "tests/support/random_bytes.h"
#include "tests/support/taken_apart.h"

namespace drun::hosts {
namespace {

using test::random_bytes;

std::string texts_and_lines(const std::string& bytes, std::size_t piece) {
  return test::taken_apart(bytes, piece, false).text;
}

// Without mark and newline.
std::string body(const std::string& line) {
  REQUIRE(line.ends_with('\n'));
  const std::size_t mark = line.starts_with(kMark) ? kMark.size() : 0;
  return line.substr(mark, line.size() - mark - 1);
}

}  // namespace

TEST_CASE("starts, hellos and ends come out as they went in, whatever bytes are in them") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    Start start{.arguments = {random_bytes(random), random_bytes(random)},
                .environment = {{random_bytes(random), random_bytes(random)}},
                .directory = random_bytes(random),
                .host = random_bytes(random),
                .label = random_bytes(random),
                .secret = random_bytes(random),
                .report_file = random_bytes(random),
                .sends_lines = i % 2 == 0,
                .keeps_all = i % 3 == 0,
                .log_directory = random_bytes(random),
                .columns = 132,
                .has_colour = true,
                .utc_offset_s = -3600};
    const std::string line = to_line(start);
    CHECK(line.find('\n') == line.size() - 1);
    const Result<Start> read = parse_start(body(line));
    REQUIRE(read);
    CHECK(*read == start);
    const Hello hello{
        .version = random_bytes(random), .problem = random_bytes(random), .exit_code = 3};
    CHECK(*parse_hello(body(to_line(hello))) == hello);
    const End end{.exit_code = 41, .text = random_bytes(random), .report = random_bytes(random)};
    CHECK(*parse_end(body(to_line(end))) == end);
  }
}

TEST_CASE("no secret, no field of that name") {
  CHECK(to_line(Start{}).find("secret") == std::string::npos);
  CHECK(to_line(Start{.secret = "s"}).find("secret") != std::string::npos);
}

TEST_CASE("a first line that is none is refused with the reason") {
  const auto reason = [](const std::string& line) {
    const Result<Start> start = parse_start(line);
    REQUIRE_FALSE(start);
    return start.error().message;
  };
  CHECK_THAT(reason(""), ContainsSubstring("no JSON object"));
  CHECK_THAT(reason("[1]"), ContainsSubstring("no JSON object"));
  CHECK_THAT(reason("{}"), ContainsSubstring("no proper \"protocol\""));
  CHECK_THAT(reason(R"({"protocol":"1"})"), ContainsSubstring("no proper \"protocol\""));
  CHECK_THAT(reason(R"({"protocol":1,"arguments":[1]})"), ContainsSubstring("\"arguments\""));
  CHECK_THAT(reason(R"({"protocol":1,"arguments":[],"environment":[["A"]]})"),
             ContainsSubstring("\"environment\""));
  CHECK_THAT(reason(std::string(kMostLineBytes + 1, ' ')), ContainsSubstring("no JSON object"));
  CHECK_FALSE(parse_hello(R"({"protocol":1e99})"));
}

TEST_CASE("an agent's own lines are found among its workers', wherever the pieces break") {
  const std::string mark(kMark);
  const std::string bytes = "one\n" + mark + "A\ntwo \x1e three" + mark +
                            "B\nfour\x1e"
                            "dr\n\x1e";
  const std::string expected =
      "one\n<A>two \x1e three<B>four\x1e"
      "dr\n\x1e";
  for (std::size_t size = 1; size <= bytes.size(); ++size)
    CHECK(texts_and_lines(bytes, size) == expected);
  CHECK(texts_and_lines("x" + mark + "cut", 3) == "x<cut>");
  // Compared in here: the texts are too long to be shown.
  const std::string endless = mark + std::string(kMostLineBytes + 100, 'x') + "\n";
  const bool is_text = texts_and_lines(endless, 1 << 20) == endless;
  CHECK(is_text);
}

}  // namespace drun::hosts
