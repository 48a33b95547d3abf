// Tests that slow ranks of real jobs are named, and replaced. A minute is three seconds here.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

using nlohmann::json;

constexpr const char* kWindow = "0.5";

Launch slow_job(const Words& options, const Words& arguments) {
  Launch launch = job(options, Words{built("workers/slow_rank")} + arguments);
  launch.environment["DRUN_SPEED_WINDOW"] = kWindow;
  return launch;
}

std::vector<json> slow_events(const std::string& file) {
  std::vector<json> events;
  std::istringstream text(read_file(file));
  for (std::string line; std::getline(text, line);)
    if (json event = json::parse(line); event["event"] == "slow_found") events.push_back(event);
  return events;
}

Ended job_status(const Words& words) {
  return run({.argv = Words{drun_program(), "status"} + words});
}

}  // namespace

TEST_CASE("a slow rank is named once on the console, in events, status and report") {
  const TemporaryDirectory directory;
  const std::string id = "slow-" + std::to_string(getpid());
  const std::string events = directory.file("events");
  const std::string report = directory.file("report.json");
  Running running(
      slow_job({"--local-nodes=2", "--nproc-per-node=2", "--rdzv-id=" + id, "--events=" + events,
                "--report=" + report, "--report=" + directory.file("job.html")},
               {"3", "100", "900"}));
  REQUIRE(running.prints("round 0 of 4"));
  json said;
  CHECK(eventually(
      [&] {
        const Ended answer = job_status({id, "--json"});
        if (answer.code != 0) return false;
        std::istringstream lines(answer.out);
        for (std::string line; std::getline(lines, line);) said = json::parse(line);
        return !said["slow"].empty();
      },
      30s));
  REQUIRE(said["slow"].size() == 1);
  CHECK(said["slow"][0]["rank"] == 3);
  CHECK(said["slow"][0]["host"] == "node1");
  CHECK(said["slow"][0]["is_slow"] == true);
  CHECK(said["slow"][0]["slower_percent"].get<int>() > 30);
  CHECK_THAT(job_status({id}).out, ContainsSubstring("  slow: rank 3 on node 1 (node1) is "));
  const Ended ended = running.wait(60s);
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.err, "warning node 0: rank 3 on node 1 (node1) is ") == 1);
  CHECK(count(ended.err, "  slow       rank 3 on node 1 (node1) is ") == 1);
  CHECK(count(ended.err, "slower than the others") == 2);
  std::vector<json> found;
  for (const json& event : slow_events(events)) {
    CHECK(event["slow_rank"] == 3);
    found.push_back(event);
  }
  CHECK(found.size() == 2);  // one of each agent
  const json told = json::parse(read_file(report));
  REQUIRE(told["slow"].size() == 1);
  CHECK(told["slow"][0]["rank"] == 3);
  const std::string page = read_file(directory.file("job.html"));
  CHECK_THAT(page, ContainsSubstring("<h2 id=\"slow\">Slow ranks and nodes</h2><ul class=\"notes\">"
                                     "<li>rank 3 on "));
}

TEST_CASE("with --exclude-slow a standby node replaces a slow node of a running job") {
  const Words options{"--nnodes=2:2",
                      "--rdzv-backend=c10d",
                      "--rdzv-id=e2e",
                      "--min-uptime=0.2",
                      "--exclude-slow",
                      "--nproc-per-node=1",
                      "--rdzv-endpoint=localhost:" + std::to_string(free_port())};
  std::vector<std::unique_ptr<Running>> agents;
  const auto start = [&](const std::string& is_host, bool is_slow) {
    Launch launch = slow_job(options + Words{"--rdzv-conf=is_host=" + is_host}, {});
    if (is_slow) launch.environment["SLOW_PERCENT"] = "100";
    agents.push_back(std::make_unique<Running>(launch));
  };
  start("1", false);
  start("0", true);
  REQUIRE(agents[0]->prints("round 0 of 2"));
  start("0", false);
  REQUIRE(agents[2]->prints("is a spare"));
  const Ended slow = agents[1]->wait(60s);
  INFO(slow.err);
  CHECK(slow.code == 122);
  CHECK_THAT(slow.err, ContainsSubstring("(--exclude-slow)"));
  for (const std::size_t i : {0U, 2U}) {
    const Ended ended = agents[i]->wait(40s);
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK_THAT(ended.out, ContainsSubstring("round 1 of 2"));
    CHECK_THAT(ended.err, ContainsSubstring("the job continues without node 1"));
  }
}

}  // namespace drun::testing
