// Tests foreign input where drun expects its own JSON.
#include "rendezvous/base/foreign_json.h"

#include <climits>
#include <string>

#include "launcher/report/status_text.h"
#include "tests/support/catch.h"
#include "tests/support/probe_reports.h"
#include "worker_lib/tools/probe/formats.h"

namespace drun {
namespace {

using nlohmann::json;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// The status of an agent, to be changed by a test.
json status() {
  return {{"schema", "drun.status/1"},
          {"run_id", "night"},
          {"host", "gpu0"},
          {"phase", "running"},
          {"agent_pid", 7},
          {"drun_pid", 6},
          {"master_addr", "10.0.0.1"},
          {"master_port", 29500},
          {"world_size", 2},
          {"nodes", 1},
          {"node_rank", 0},
          {"up_s", 3},
          {"phase_times_s", nullptr},
          {"round", 0},
          {"restarts", 0},
          {"max_restarts", 0},
          {"command", {"./a"}},
          {"workers", {{{"rank", 0}, {"local_rank", 0}, {"pid", nullptr}, {"state", "ended"}}}},
          {"last_failure", nullptr},
          {"log_directory", nullptr}};
}

}  // namespace

TEST_CASE("foreign JSON is discarded beyond a nesting depth of 64") {
  CHECK(parse_foreign_json(nested(64)).is_array());
  CHECK(parse_foreign_json(nested(65)).is_discarded());
  CHECK(parse_foreign_json(nested(1'000'000)).is_discarded());
  CHECK(parse_foreign_json(std::string(1'000'000, '[')).is_discarded());
  CHECK(parse_foreign_json("7 8").is_discarded());
}

TEST_CASE(
    "a foreign number becomes the nearest int, and a value that is not a whole number is an "
    "error") {
  CHECK(int_of(json(7)) == 7);
  CHECK(int_of(json::parse("-9223372036854775808")) == INT_MIN);
  CHECK(int_of(json::parse("18446744073709551615")) == INT_MAX);
  CHECK(count_in(json(-3)) == 0);
  for (const char* text : {"1e300", "0.5", "\"7\"", "true", "null", "[7]"})
    CHECK_THROWS_AS(int_of(json::parse(text)), json::type_error);
}

TEST_CASE("an answer with deep nesting or wrong types is rejected") {
  std::string text = status().dump();
  text.replace(text.find("\"10.0.0.1\""), 10, nested(1'000'000));
  CHECK_FALSE(status_names(text));
  CHECK(status_text(text).empty());
  CHECK_FALSE(is_job_status("{\"schema\":" + nested(1'000'000) + "}"));
  json point = status();
  point["master_addr"] = json::array();
  CHECK_FALSE(status_names(point.dump()));
}

TEST_CASE("control characters and impossible numbers in an answer do not reach the terminal") {
  const json good = status();
  CHECK_THAT(status_text(good.dump()), ContainsSubstring("ended"));
  json bad = good;
  bad["phase"] = "run\x1b[2Jning";
  bad["workers"][0]["state"] =
      "en\x07"
      "ded";
  bad["nodes"] = -1;
  const std::string text = status_text(bad.dump());
  CHECK_THAT(text, ContainsSubstring("on 0 nodes"));
  CHECK(text.find_first_of("\x1b\x07") == std::string::npos);
  bad["nodes"] = 1e300;
  CHECK(status_text(bad.dump()).empty());
}

TEST_CASE("a probe report with impossible numbers is rejected, and its findings are printable") {
  const std::string good = probe::to_json(test::healthy_report(1, 3));
  std::string wrong = good;
  wrong.replace(wrong.find("\"mtu\":9000"), 10, "\"mtu\":1e300");
  CHECK_FALSE(probe::parse_report(wrong));
  wrong = good;
  wrong.replace(wrong.find("\"cores\":64"), 10, "\"cores\":" + nested(10'000));
  CHECK_FALSE(probe::parse_report(wrong));
  const std::string text = probe::findings_text({{true, {1}, "what\x1b", "remedy\x07"}});
  CHECK(text.find_first_of("\x1b\x07") == std::string::npos);
}

}  // namespace drun
