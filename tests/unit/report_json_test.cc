#include "launcher/report/report.h"

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/messages.h"

namespace drun {
namespace {

nlohmann::json parsed(const Outcome& outcome, int exit_code) {
  const std::string text = report_json(outcome, exit_code);
  CHECK(text.back() == '\n');
  return nlohmann::json::parse(text);
}

}  // namespace

TEST_CASE("the report of a success has every field") {
  Outcome outcome;
  outcome.run_id = "job";
  outcome.node_count = 2;
  outcome.world_size = 8;
  outcome.max_restarts = 3;
  outcome.duration = std::chrono::milliseconds(1500);
  const nlohmann::json json = parsed(outcome, 0);
  CHECK(json["schema"] == "drun.report/1");
  CHECK(json["outcome"] == "succeeded");
  CHECK(json["exit_code"] == 0);
  CHECK(json["run_id"] == "job");
  CHECK(json["nodes"] == 2);
  CHECK(json["workers"] == 8);
  CHECK(json["restarts"] == 0);
  CHECK(json["max_restarts"] == 3);
  CHECK(json["duration_s"] == 1.5);
  CHECK(json["root_cause"].is_null());
  CHECK(json["failures"].empty());
  CHECK(json["failures_left_out"] == 0);
  CHECK(json["details"].is_null());
  CHECK(json["left_out"].empty());
  CHECK(json["slow"].empty());
  CHECK(json["timeouts"].empty());
  outcome.left_out = {{1, "gpu1", 2, "it fails"}};
  CHECK(parsed(outcome, 0)["left_out"][0]["host"] == "gpu1");
  CHECK(parsed(outcome, 0)["left_out"][0]["reason"] == "it fails");
}

TEST_CASE("failures contain all known fields, and invalid UTF-8 is replaced") {
  Failure root;
  root.rank = 5;
  root.node_rank = 1;
  root.host = "gpu1";
  root.pid = 4711;
  root.status = Killed{SIGKILL, false};
  root.out_of_memory = true;
  root.time = test::kSomeTime;
  root.stderr_tail = {"\xff\xfe", "ok \"quoted\"\n"};
  root.message = "bad \xc3";
  Failure exited = root;
  exited.status = Exited{3};
  Failure missing = root;
  missing.status = NotStarted{ENOENT};
  Outcome outcome;
  outcome.ending = WorkersFailed{{root, exited, missing}};
  outcome.failures_left_out = 7;
  const nlohmann::json json = parsed(outcome, 137);
  CHECK(json["outcome"] == "failed");
  CHECK(json["exit_code"] == 137);
  CHECK(json["root_cause"] == json["failures"][0]);
  CHECK(json["failures"].size() == 3);
  CHECK(json["failures_left_out"] == 7);
  const nlohmann::json& first = json["root_cause"];
  CHECK(first["rank"] == 5);
  CHECK(first["host"] == "gpu1");
  CHECK(first["time"] == "2026-11-21T13:03:07.123456Z");
  CHECK(first["out_of_memory"] == true);
  CHECK(first["status"]["kind"] == "killed");
  CHECK(first["status"]["signal_name"] == "SIGKILL");
  CHECK(first["exit_code"] == 137);
  CHECK(first["stderr_tail"][0] == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(first["stderr_tail"][1] == "ok \"quoted\"\n");
  CHECK(first["message"] == "bad \xef\xbf\xbd");
  CHECK(first["error"] == first["message"]);
  CHECK(first["traceback"].is_null());
  CHECK(first["error_file"].is_null());
  CHECK(json["failures"][1]["status"] == nlohmann::json{{"kind", "exited"}, {"code", 3}});
  CHECK(json["failures"][2]["status"] ==
        nlohmann::json{{"kind", "not_started"}, {"errno", ENOENT}});
  CHECK(json["failures"][2]["exit_code"] == 127);
}

TEST_CASE("a failure has its whole error") {
  const std::string text = "ValueError: " + std::string(1000, 'x');
  Failure root;
  root.status = Exited{1};
  root.stderr_tail = {"[rank0]: " + text, "WARNING: y"};
  Failure silent = root;
  silent.stderr_tail.clear();
  Outcome outcome;
  outcome.ending = WorkersFailed{{root, silent}};
  const nlohmann::json json = parsed(outcome, 1);
  CHECK(json["root_cause"]["error"] == text);
  CHECK(json["failures"][1]["error"].is_null());
}

TEST_CASE("other outcomes have their own details") {
  Outcome outcome;
  outcome.ending = Interrupted{SIGTERM, 1, "gpu1"};
  nlohmann::json json = parsed(outcome, 143);
  CHECK(json["outcome"] == "interrupted");
  CHECK(json["details"]["signal"] == SIGTERM);
  CHECK(json["details"]["signal_name"] == "SIGTERM");
  CHECK(json["details"]["host"] == "gpu1");
  outcome.ending = NodeLost{2, "gpu2", true, "silent"};
  json = parsed(outcome, 122);
  CHECK(json["outcome"] == "node_lost");
  CHECK(json["details"]["node_rank"] == 2);
  CHECK(json["details"]["is_coordinator"] == true);
  CHECK(json["details"]["reason"] == "silent");
  outcome.ending = NotRun{{ErrorCode::Refused, "taken"}};
  json = parsed(outcome, 121);
  CHECK(json["outcome"] == "not_run");
  CHECK(json["details"]["error"] == "refused");
  CHECK(json["details"]["message"] == "taken");
  outcome.ending = Preempted{"its time limit ends"};
  json = parsed(outcome, 124);
  CHECK(json["outcome"] == "preempted");
  CHECK(json["details"]["reason"] == "its time limit ends");
  CHECK(json["root_cause"].is_null());
}

TEST_CASE("the report lists the collectives that had timed out before a stop") {
  const std::string text = report_json(
      {.ending = Interrupted{2, 0, "gpu0"}}, 130, {}, {},
      {{{{1, 2}, {5, 5}}, "all_reduce (number 21)", test::kSomeTime}, {{{0, 0}}, "", {}}});
  const nlohmann::json timeouts = nlohmann::json::parse(text)["timeouts"];
  REQUIRE(timeouts.size() == 2);
  CHECK(timeouts[0]["ranks"] == nlohmann::json::parse("[[1, 2], [5, 5]]"));
  CHECK(timeouts[0]["call"] == "all_reduce (number 21)");
  CHECK(timeouts[0]["time"].get<std::string>().ends_with("Z"));
  CHECK(timeouts[1]["call"].is_null());
}

}  // namespace drun
