#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/stacks/evidence.h"
#include "agent/status/events.h"
#include "agent/status/node_status.h"
#include "launcher/report/status_text.h"
#include "tests/support/catch.h"
#include "tests/support/messages.h"

namespace drun {
namespace {

using agent::NodeStatus;
using nlohmann::json;
using test::kSomeTime;

json line_of(const agent::Event& event) {
  const std::string line =
      event_line(event, {.run_id = "night", .host = "gpu0", .pid = 7}, kSomeTime);
  CHECK(line.find('\n') == line.size() - 1);
  return json::parse(line);
}

NodeStatus running_node() {
  NodeStatus status;
  status.run_id = "night";
  status.host = "gpu0";
  status.pid = 7;
  status.parent_pid = 6;
  status.command = {"./train", "--lr=1"};
  status.phase = agent::NodePhase::Running;
  status.world = World{.run_id = "night",
                       .round = 1,
                       .restarts = 1,
                       .max_restarts = 3,
                       .node_rank = 2,
                       .node_count = 4,
                       .base_rank = 4,
                       .local_world_size = 2,
                       .world_size = 8,
                       .master_addr = "gpu9"};
  status.up = std::chrono::milliseconds(61'000);
  status.round_up = std::chrono::milliseconds(1'500);
  status.pids = {31, 0};
  return status;
}

Failure failure() {
  Failure failed;
  failed.rank = 5;
  failed.pid = 30;
  failed.status = Killed{.signal = 9};
  failed.time = kSomeTime;
  failed.out_of_memory = true;
  return failed;
}

}  // namespace

TEST_CASE("an event is one JSON line with its time, name and origin") {
  const json line =
      line_of(agent::WorkerStarted{.round = 1, .rank = 5, .local_rank = 1, .pid = 31});
  CHECK(line == json{{"time", "2026-11-21T13:03:07.123456Z"},
                     {"event", "worker_started"},
                     {"run_id", "night"},
                     {"host", "gpu0"},
                     {"agent_pid", 7},
                     {"round", 1},
                     {"rank", 5},
                     {"local_rank", 1},
                     {"pid", 31}});
}

TEST_CASE("every event has its name and its fields") {
  CHECK(line_of(agent::AgentStarted{2, {"./a\nb"}})["command"][0] == "./a\nb");
  CHECK(line_of(agent::AgentStarted{2, {"\xff"}})["command"][0] == "\xef\xbf\xbd");
  CHECK(line_of(agent::RoundBegan{*running_node().world})["first_rank"] == 4);
  CHECK(line_of(agent::RoundBegan{*running_node().world})["is_preflight"] == false);
  const json failed = line_of(agent::WorkerFailed{failure()});
  CHECK(failed["event"] == "worker_failed");
  CHECK(failed["exit_code"] == 137);
  CHECK(failed["out_of_memory"] == true);
  Failure hung = failure();
  hung.status = Hung{"silent for 60 s"};
  const json suspected = line_of(agent::HangSuspectedHere{hung});
  CHECK(suspected["event"] == "hang_suspected");
  CHECK(suspected["rank"] == 5);
  CHECK(suspected["signs"] == "hung: silent for 60 s");
  const json found = line_of(agent::HangFoundAnywhere{2, "rank 5 hung", test::full_evidence()});
  CHECK(found["event"] == "hang_found");
  CHECK(found["evidence"][0] == "ranks 0-6, 8-63: in all_reduce #812, no sign of life (gdb)");
  const json left_out = line_of(agent::NodeLeftOut{{1, "gpu1", 2, "it fails"}});
  CHECK(left_out["event"] == "node_left_out");
  CHECK(left_out["left_out_host"] == "gpu1");
  CHECK(left_out["reason"] == "it fails");
  const json slow = line_of(agent::SlowRankFound{{.node_rank = 1, .host = "gpu1", .percent = 14}});
  CHECK(slow["event"] == "slow_found");
  CHECK(slow["slow_rank"].is_null());
  CHECK(slow["slow_host"] == "gpu1");
  CHECK(slow["slower_percent"] == 14);
  CHECK(line_of(agent::RoundStopping{2})["event"] == "round_stopping");
  CHECK(line_of(agent::RoundStopping{2})["cause"].is_null());
  CHECK(line_of(agent::RoundStopping{2, "rank 5 failed"})["cause"] == "rank 5 failed");
  CHECK(line_of(agent::RoundEnded{2, true})["succeeded"] == true);
  const json with_failures =
      line_of(agent::RoundEnded{.round = 2, .failures = std::vector<Failure>(9, failure())});
  CHECK(with_failures["failures"].size() == agent::kMostEventFailures);
  CHECK(with_failures["failures"][0]["rank"] == 5);
  CHECK(line_of(agent::PhaseBegan{agent::Phase::Standby})["phase"] == "standby");
  CHECK(line_of(agent::WorkerAlive{1, 5, 1})["event"] == "worker_alive");
  CHECK(line_of(agent::CoordinatorJoined{3})["term"] == 3);
  const json gone = line_of(
      agent::WorkerEnded{.rank = 5,
                         .status = Killed{.signal = 15},
                         .stopped_by_drun = true,
                         .usage = WorkerUsage{.peak_memory_bytes = 4096,
                                              .processor_time = std::chrono::milliseconds(1500)}});
  CHECK(gone["exit_code"] == 143);
  CHECK(gone["stopped_by_drun"] == true);
  CHECK(gone["peak_memory_bytes"] == 4096);
  CHECK(gone["processor_s"] == 1.5);
  CHECK(line_of(agent::WorkerEnded{})["processor_s"].is_null());
  const json fault = line_of(agent::FaultInjectedAnywhere{
      {.fault = "kill:rank=3@20s", .rank = 3, .node_rank = 1, .host = "gpu1", .round = 2}});
  CHECK(fault["event"] == "fault_injected");
  CHECK(fault["fault"] == "kill:rank=3@20s");
  CHECK(fault["fault_rank"] == 3);
  CHECK(fault["fault_node_rank"] == 1);
  CHECK(fault["round"] == 2);
  CHECK(line_of(agent::SignalCame{15})["signal_name"] == "SIGTERM");
  const json ended = line_of(agent::JobEnded{Outcome{.ending = WorkersFailed{{failure()}}}});
  CHECK(ended["outcome"] == "failed");
  CHECK(ended["root_cause_rank"] == 5);
  const json not_run = line_of(agent::JobEnded{Outcome{.ending = NotRun{Error{.message = "no"}}}});
  CHECK(not_run["outcome"] == "not_run");
  CHECK(not_run["message"] == "no");
}

TEST_CASE("a node's status contains its identity, progress and workers") {
  NodeStatus status = running_node();
  status.last_failure = failure();
  const json said = json::parse(status_json(status));
  CHECK(said["schema"] == "drun.status/1");
  CHECK(said["phase"] == "running");
  CHECK(said["node_rank"] == 2);
  CHECK(said["round"] == 1);
  CHECK(said["round_up_s"] == 1.5);
  CHECK(said["workers"] == json{{{"rank", 4},
                                 {"local_rank", 0},
                                 {"role", "default"},
                                 {"pid", 31},
                                 {"state", "running"},
                                 {"label", nullptr},
                                 {"stdout_log", nullptr},
                                 {"stderr_log", nullptr}},
                                {{"rank", 5},
                                 {"local_rank", 1},
                                 {"role", "default"},
                                 {"pid", nullptr},
                                 {"state", "ended"},
                                 {"label", nullptr},
                                 {"stdout_log", nullptr},
                                 {"stderr_log", nullptr}}});
  CHECK(said["programs"].is_null());
  CHECK(said["last_failure"]["exit_code"] == 137);
  CHECK(said["log_directory"].is_null());
}

TEST_CASE("a node's status before the first round has no world") {
  NodeStatus status = running_node();
  status.world.reset();
  status.node_count = 3;
  status.phase = agent::NodePhase::Joining;
  const json said = json::parse(status_json(status));
  CHECK(said["nodes"] == 3);
  CHECK(said["world_size"].is_null());
  CHECK(said["workers"].empty());
  CHECK_THAT(status_text(status_json(status)), ContainsSubstring("joining for 1 min 1 s, 3 nodes"));
}

TEST_CASE("a node's status is formatted as text") {
  NodeStatus status = running_node();
  status.last_failure = failure();
  status.log_directory = "/logs";
  CHECK(status_text(status_json(status)) ==
        "night  node 2  gpu0  agent 7\n"
        "  running, 8 workers on 4 nodes, up 1 min 1 s; round 1 for 1.500 s; 1 of 3 restarts "
        "used\n"
        "  command: ./train --lr=1\n"
        "  rank 4  local rank 0  pid 31\n"
        "  rank 5  local rank 1  ended\n"
        "  last failure: rank 5, signal 9 (SIGKILL, killed), at 2026-11-21T13:03:07.123456Z\n"
        "  logs: /logs\n");
}

TEST_CASE("a node's status with several programs names them and each worker's role") {
  NodeStatus status = running_node();
  status.programs = {{.role = "server", .workers = 1, .argv = {"./server"}},
                     {.role = "\x1b[2Jtrain", .workers = 1, .argv = {"./train", "--lr=1"}}};
  status.world->roles = {{"server", 1, 0, 1}, {"\x1b[2Jtrain", 1, 3, 7}};
  CHECK(json::parse(status_json(status))["programs"][1]["command"] == json{"./train", "--lr=1"});
  const std::string text = status_text(status_json(status));
  CHECK_THAT(text, ContainsSubstring("\n  server, 1 worker: ./server\n") &&
                       ContainsSubstring("train, 1 worker: ./train --lr=1\n") &&
                       ContainsSubstring("  rank 4  local rank 0  server  pid 31\n"));
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("control characters in a run id do not reach the terminal") {
  NodeStatus status = running_node();
  status.run_id = "a\x1b[2Jb\x07";
  CHECK(status_text(status_json(status)).find('\x1b') == std::string::npos);
  CHECK(status_text(status_json(status)).find('\x07') == std::string::npos);
}

TEST_CASE("a node's status shortens a list of a thousand workers") {
  NodeStatus status = running_node();
  status.pids.assign(1000, 5);
  const std::string text = status_text(status_json(status));
  CHECK(std::count(text.begin(), text.end(), '\n') < 80);
  CHECK_THAT(text, ContainsSubstring("936 more"));
}

TEST_CASE("drun stacks --json has the evidence of all ranks") {
  agent::Evidence evidence = test::full_evidence();
  const json shown = json::parse(agent::evidence_json(evidence, "night"));
  CHECK(shown["run_id"] == "night");
  CHECK(shown["notes"] == evidence.notes);
  CHECK(shown["ranks_left_out"] == evidence.ranks_left_out);
  REQUIRE(shown["groups"].size() == evidence.groups.size());
  for (std::size_t i = 0; i < evidence.groups.size(); ++i) {
    const agent::StackGroup& group = evidence.groups[i];
    const json& seen = shown["groups"][i];
    CHECK(seen["stacks"] == group.lines);
    CHECK(seen["source"] == group.source);
    CHECK(seen["is_quiet"] == group.is_quiet);
    CHECK((group.doing.empty() ? seen["doing"].is_null() : seen["doing"] == group.doing));
    REQUIRE(seen["ranks"].size() == group.ranks.size());
    for (std::size_t k = 0; k < group.ranks.size(); ++k)
      CHECK(seen["ranks"][k] == json::array({group.ranks[k].first, group.ranks[k].last}));
  }
  evidence.groups[0].lines[0] = "\xff";
  CHECK(json::accept(agent::evidence_json(evidence, "\xff")));
}

TEST_CASE("a job is identified by its run id or by the pid of its agent or of drun") {
  const StatusNames names = *status_names(status_json(running_node()));
  for (const char* name : {"night", "7", "6"}) CHECK(is_called(names, name));
  for (const char* name : {"", "nigh", "31", "0"}) CHECK_FALSE(is_called(names, name));
}

TEST_CASE("an invalid node status is rejected") {
  const std::string good = status_json(running_node());
  REQUIRE(status_names(good));
  CHECK(status_names(good)->run_id == "night");
  CHECK(status_names(good)->agent_pid == 7);
  CHECK(status_names(good)->drun_pid == 6);
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("{}"),
        std::string(R"({"schema":"drun.status/2"})"), std::string(R"({"schema":"drun.status/1"})"),
        std::string(R"({"schema":"drun.status/1","run_id":3,"agent_pid":1,"drun_pid":1})")}) {
    CAPTURE(bad);
    CHECK_FALSE(status_names(bad));
    CHECK(status_text(bad).empty());
  }
  for (std::size_t size = 0; size < good.size() - 1; ++size) {
    REQUIRE_FALSE(status_names(good.substr(0, size)));
  }
}

}  // namespace drun
