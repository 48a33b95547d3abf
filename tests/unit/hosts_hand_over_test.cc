#include "launcher/remote/agent_protocol.h"

#include <random>

#include "tests/support/catch.h"
#include "tests/support/random_bytes.h"

namespace drun::hosts {
namespace {

using test::random_bytes;

// Without the newline.
std::string body(const std::string& line) {
  REQUIRE(line.ends_with('\n'));
  return line.substr(0, line.size() - 1);
}

}  // namespace

TEST_CASE("starts, hellos and ends come out as they went in, whatever bytes are in them") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    Start start{.nonce = random_bytes(random),
                .arguments = {random_bytes(random), random_bytes(random)},
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
    CHECK(*parse_hello(to_text(hello)) == hello);
    const End end{.exit_code = 41,
                  .text = random_bytes(random),
                  .report = random_bytes(random),
                  .events = random_bytes(random)};
    CHECK(*parse_end(to_text(end)) == end);
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
  CHECK_THAT(reason(R"({"protocol":1,"nonce":"","arguments":[1]})"),
             ContainsSubstring("\"arguments\""));
  CHECK_THAT(reason(R"({"protocol":1,"nonce":"","arguments":[],"environment":[["A"]]})"),
             ContainsSubstring("\"environment\""));
  CHECK_THAT(reason(std::string(kMostLineBytes + 1, ' ')), ContainsSubstring("no JSON object"));
  CHECK_FALSE(parse_hello(R"({"protocol":1e99})"));
}

}  // namespace drun::hosts
