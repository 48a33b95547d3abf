#include "agent/status/node_status.h"

#include <nlohmann/json.hpp>

#include "launcher/report/status_text.h"
#include "tests/support/catch.h"
#include "tests/support/messages.h"

namespace drun {
namespace {

using agent::NodeStatus;
using nlohmann::json;
using namespace std::chrono_literals;

NodeStatus own() {
  NodeStatus status;
  status.run_id = "night";
  status.host = "gpu0";
  status.pid = 7;
  status.parent_pid = 6;
  status.command = {"./train", "--lr=1"};
  status.phase = agent::NodePhase::Running;
  status.up = 61s;
  status.pids = {31, 0};
  status.workers_failed = 1;
  status.node_count = 4;
  return status;
}

Census census() {
  Census census = test::full_census();
  Failure& failure = *census.job.last_failure;
  failure.host = "gpu1";
  failure.time = test::kSomeTime;
  census.job.is_preflight = false;
  return census;
}

}  // namespace

TEST_CASE("a job's status lists every node with its state and marks nodes that do not answer") {
  const json said = json::parse(agent::job_json(own(), census()));
  CHECK(said["schema"] == "drun.job/1");
  CHECK(said["run_id"] == "night");
  CHECK(said["endpoint"] == "10.0.0.1:29500");
  CHECK(said["phase"] == "stopping");
  CHECK(said["round"] == 4);
  CHECK(said["restarts"] == 2);
  CHECK(said["restarts_left"] == 1);
  CHECK(said["note"].is_null());
  REQUIRE(said["nodes"].size() == 3);
  CHECK(said["nodes"][0] == json{{"node_rank", 0},
                                 {"host", "a"},
                                 {"state", "running"},
                                 {"workers", 8},
                                 {"workers_running", 7},
                                 {"workers_failed", 1},
                                 {"up_s", 91.0},
                                 {"heard_s", 0.017}});
  CHECK(said["nodes"][1]["state"] == "lost");
  CHECK(said["nodes"][2]["state"] == "silent");
  CHECK(said["nodes"][2]["node_rank"].is_null());
  CHECK(said["nodes"][2]["up_s"].is_null());
  CHECK(said["missing_node_ranks"] == json{2, 3});
  CHECK(said["left_out"][0]["reason"] == "it fails");
  CHECK(said["slow"] == json::array({{{"rank", 5},
                                      {"node_rank", 1},
                                      {"host", "b"},
                                      {"round", 2},
                                      {"slower_percent", 14},
                                      {"evidence", "the others wait for it 12 % of the time"},
                                      {"is_slow", false}}}));
  CHECK(said["last_failure"]["rank"] == 3);
  CHECK(said["phase_times_s"]["running"] == 88.5);
  CHECK(said["longest_phase_times"]["running"] ==
        json{{"seconds", 89.0}, {"node_rank", 0}, {"rank", nullptr}});
  CHECK(said["longest_phase_times"]["start"] ==
        json{{"seconds", 2.5}, {"node_rank", 0}, {"rank", 3}});
}

TEST_CASE("a job's status is formatted as text") {
  CHECK(
      job_text(agent::job_json(own(), census())) ==
      "night  coordinator 10.0.0.1:29500  agent 7 here\n"
      "  stopping, 16 workers on 2 nodes, up 1 min 30 s; round 4 for 0.250 s; 2 restarts used, "
      "1 left\n"
      "  command: ./train --lr=1\n"
      "  time: waiting 0.750 s (node 0: 1.000 s), spawn 0.020 s, start 1.000 s (rank 3: 2.500 s), "
      "running 1 min 28 s\n"
      "  node 0  a  running  7 of 8 workers run, 1 failed  up 1 min 31 s\n"
      "  node 1  b  lost  8 workers  last heard 4.000 s ago\n"
      "  spare  c  silent  8 workers  last heard 0.001 s ago\n"
      "  and 5 more; see --json\n"
      "  node 2  missing\n"
      "  node 3  missing\n"
      "  left out: node 1 (b) after round 4: it fails\n"
      "  slow before: rank 5 on node 1 (b) is 14 % slower than the others: the others wait for it "
      "12 % of the time\n"
      "  last failure: rank 3 on node 0 (gpu1), signal 11 (SIGSEGV, segmentation fault), core "
      "dumped, in round 2, at 2026-11-21T13:03:07.123456Z\n");
}

TEST_CASE("without a coordinator a node reports only itself and the reason") {
  const std::string said = agent::job_json(own(), {.note = "this node is not in touch"});
  const json parsed = json::parse(said);
  CHECK(parsed["note"] == "this node is not in touch");
  CHECK(parsed["endpoint"].is_null());
  REQUIRE(parsed["nodes"].size() == 1);
  CHECK(parsed["nodes"][0]["workers_running"] == 1);
  CHECK(parsed["nodes"][0]["workers_failed"] == 1);
  CHECK(parsed["nodes"][0]["node_rank"].is_null());
  CHECK_THAT(job_text(said), ContainsSubstring("this node alone: this node is not in touch"));
}

TEST_CASE("control characters in a job's status do not reach the terminal") {
  Census told = census();
  told.nodes[0].host = "a\x1b[2Jb\x07\xff";
  NodeStatus status = own();
  status.run_id = "\x1b]0;x";
  const std::string text = job_text(agent::job_json(status, told));
  CHECK_FALSE(text.empty());
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\x07') == std::string::npos);
}

TEST_CASE("an invalid job status gives no text") {
  const std::string bad =
      GENERATE(std::string(), std::string("[]"), std::string("{"), std::string("3"),
               std::string(R"({"schema":"drun.job/1"})"), std::string(R"({"schema":1})"));
  CHECK(job_text(bad).empty());
  CHECK(is_job_status(bad) == (bad.find("drun.job/1") != bad.npos));
}

TEST_CASE("a job's status shortens a list of a thousand nodes") {
  Census told = census();
  told.nodes.assign(1000, told.nodes[0]);
  const std::string text = job_text(agent::job_json(own(), told));
  CHECK_THAT(text, ContainsSubstring("and 749 more"));
  CHECK(std::count(text.begin(), text.end(), '\n') < 300);
}

TEST_CASE("drun list has a line per job with aligned columns") {
  JobRow row = *job_row(agent::job_json(own(), census()));
  CHECK(row == JobRow{.job = "night",
                      .state = "stopping",
                      .nodes = "2",
                      .workers = "16",
                      .restarts = "2/3",
                      .up = "1 min 30 s",
                      .command = "./train --lr=1"});
  CHECK(job_table({}, std::nullopt) == "JOB  STATE  NODES  WORKERS  RESTARTS  UP  COMMAND\n");
  JobRow longer = row;
  longer.job =
      "n\xc3\xa4"
      "chte";  // six characters
  longer.state = "joining";
  CHECK(job_table({row, longer}, std::nullopt) ==
        "JOB     STATE     NODES  WORKERS  RESTARTS  UP          COMMAND\n"
        "night   stopping  2      16       2/3       1 min 30 s  ./train --lr=1\n"
        "n\xc3\xa4"
        "chte  joining   2      16       2/3       1 min 30 s  ./train --lr=1\n");
  CHECK_FALSE(job_row("{}").has_value());
  CHECK_FALSE(job_row("no status").has_value());
}

TEST_CASE("drun list shows how many nodes a job waits for") {
  Census waiting = census();
  waiting.job.round.reset();
  waiting.job.joined_nodes = 1;
  waiting.job.min_nodes = waiting.job.max_nodes = 3;
  JobRow row = *job_row(agent::job_json(own(), waiting));
  CHECK(row.nodes == "1/3");
  CHECK(row.workers == "-");
  waiting.job.max_nodes = 4;
  CHECK(job_row(agent::job_json(own(), waiting))->nodes == "1/3:4");
}

TEST_CASE("drun list cuts the command to the width of the terminal, between characters") {
  const JobRow row{.job = "night",
                   .state = "running",
                   .nodes = "1",
                   .workers = "1",
                   .restarts = "0",
                   .up = "1.000 s",
                   .command = "./tr\xc3\xa4in --learning-rate=0.001"};
  const std::string full = job_table({row}, 200);
  CHECK(full == job_table({row}, std::nullopt));
  const std::string head = "night  running  1      1        0         1.000 s  ";
  CHECK_THAT(job_table({row}, head.size() + 12),
             ContainsSubstring("\n" + head + "./tr\xc3\xa4in -...\n"));
  CHECK_THAT(job_table({row}, head.size() + 10),
             ContainsSubstring("\n" + head + "./tr\xc3\xa4in...\n"));
  // A terminal that is narrower than the other columns still shows the beginning.
  CHECK_THAT(job_table({row}, 10), ContainsSubstring("\n" + head + "./tr\xc3\xa4...\n"));
}

TEST_CASE("on a terminal a random run id is short, and names the job in that form") {
  const std::string id = "080b08472faa7fc7e1eedd5d9b09e4fa";
  JobRow row;
  row.job = id;
  CHECK_THAT(job_table({row}, 80), ContainsSubstring("\n080b0847  "));
  CHECK_THAT(job_table({row}, std::nullopt), ContainsSubstring("\n" + id + "  "));
  const StatusNames names{.run_id = id, .agent_pid = 7, .drun_pid = 6};
  CHECK(is_called(names, "080b0847"));
  CHECK(is_called(names, id));
  CHECK_FALSE(is_called(names, "080b"));
  CHECK_FALSE(is_called({.run_id = "my-first-night"}, "my-first"));
}

TEST_CASE("drun list makes control characters visible") {
  NodeStatus status = own();
  status.run_id = "ni\tght\x1b[2J";
  status.command = {"sh", "-c", "a\nb"};
  const JobRow row = *job_row(agent::job_json(status, census()));
  CHECK(row.job.find('\x1b') == std::string::npos);
  CHECK(row.command == "sh -c a\\x0ab");
}

TEST_CASE("an elastic job continues while enough nodes are left") {
  Census job = census();
  job.job.joined_nodes = 3;
  job.job.min_nodes = 2;
  job.job.max_nodes = 4;
  const std::string elastic = agent::job_json(own(), job);
  CHECK(nodes_that_continue(elastic, 1) == 2);
  CHECK(nodes_that_continue(elastic, 2) == 0);
  CHECK(nodes_that_continue(elastic, 3) == 0);
  CHECK(nodes_that_continue(elastic, 4) == 0);
  job.job.min_nodes = job.job.max_nodes = 3;
  CHECK(nodes_that_continue(agent::job_json(own(), job), 1) == 0);
  CHECK(nodes_that_continue("{}", 1) == 0);
  CHECK(nodes_in_status(agent::status_json(own())) == 4);
  CHECK(nodes_in_status("{}") == 0);
}

TEST_CASE("a node's status has the log files of its workers and the labels of their lines") {
  NodeStatus status = own();
  status.world = World{
      .run_id = "night", .round = 2, .base_rank = 4, .local_world_size = 2, .master_addr = "gpu9"};
  CHECK(node_logs(agent::status_json(status)) == NodeLogs{.round = 2, .ranks = {}});
  status.logs = {{.stdout_file = "/l/attempt_2/0/stdout.log", .stderr_file = "", .label = "[4]:"},
                 {.stdout_file = "", .stderr_file = "", .label = "[5]:"}};
  const NodeLogs logs = *node_logs(agent::status_json(status));
  CHECK(logs == NodeLogs{.round = 2,
                         .ranks = {{.rank = 4,
                                    .label = "[4]:",
                                    .stdout_file = "/l/attempt_2/0/stdout.log",
                                    .stderr_file = ""},
                                   {.rank = 5, .label = "[5]:"}}});
  CHECK(in_round(logs, 0).ranks[0].stdout_file == "/l/attempt_0/0/stdout.log");
  CHECK(in_round(logs, 0).round == 0);
  CHECK_FALSE(node_logs("{}").has_value());
}

TEST_CASE("drun list has a line for a job whose agent does not answer") {
  CHECK(silent_row({.run_id = "night", .agent_pid = 7, .drun_pid = 6}).job == "night");
  const JobRow row = silent_row({.run_id = "", .agent_pid = 7, .drun_pid = 6});
  CHECK(row.job == "6");
  CHECK(row.state == "silent");
  CHECK_THAT(row.command, ContainsSubstring("agent 7 does not answer"));
}

}  // namespace drun
