#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"
#include "tests/support/raw_socket.h"

namespace drun::testing {
namespace {

using nlohmann::json;

std::vector<json> lines_of(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(read_file(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::string> events_of(const std::vector<json>& lines) {
  std::vector<std::string> events;
  for (const json& line : lines) events.push_back(line["event"]);
  return events;
}

Ended status(const Words& words) { return run({.argv = Words{drun_program(), "status"} + words}); }

}  // namespace

TEST_CASE("drun status finds a running job by its run id and by its pid") {
  const std::string id = "looked-at-" + std::to_string(getpid());
  Running running(shell_job({"--nproc-per-node=2", "--rdzv-id=" + id, "--max-restarts=1"},
                            "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 5\n"
                            "[ $RANK = 0 ] || exit 0\n"
                            "echo up; exec sleep 60"));
  REQUIRE(running.prints("up"));
  // Rank 1 ends at about this time.
  REQUIRE(eventually([&] {
    const Ended said = status({"--node", "--json", id});
    return said.code == 0 && json::parse(said.out)["workers"][1]["state"] == "ended";
  }));
  const json said = json::parse(status({std::to_string(running.pid()), "--json", "--node"}).out);
  CHECK(said["run_id"] == id);
  CHECK(said["phase"] == "running");
  CHECK(said["round"] == 1);
  CHECK(said["drun_pid"] == running.pid());
  CHECK(said["workers"][0]["state"] == "running");
  CHECK(said["last_failure"]["exit_code"] == 5);
  CHECK_THAT(status({id, "--node"}).out, ContainsSubstring("1 of 1 restart used"));
  CHECK_THAT(status({id}).out, ContainsSubstring("1 restart used, 0 left"));

  Running watching({.argv = {drun_program(), "status", id, "--watch", "--json"}});
  REQUIRE(watching.prints(id));
  running.signal(SIGTERM);
  running.wait();
  CHECK(watching.wait().code == 0);
  const Ended none = status({id});
  CHECK(none.code == 1);
  CHECK_THAT(none.err, ContainsSubstring("no job \"" + id + "\" of yours runs on this machine"));
}

TEST_CASE("a job whose agent is suspended is named, and --watch waits for it") {
  const std::string id = "suspended-" + std::to_string(getpid());
  Running running(shell_job({"--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(running.prints("up"));
  const auto agent = json::parse(status({id, "--json"}).out)["agent_pid"].get<pid_t>();
  Running watching({.argv = {drun_program(), "status", id, "--watch", "--json"}});
  REQUIRE(watching.prints(id));
  REQUIRE(kill(agent, SIGSTOP) == 0);
  const std::string said = "agent " + std::to_string(agent) + " of " + id + " does not answer";
  CHECK(eventually([&] { return count(watching.err(), said) > 0; }));
  for (const char* command : {"status", "stacks"}) {
    const Ended ended = run({.argv = {drun_program(), command, id}});
    CHECK(ended.code == 1);
    CHECK(ended.out.empty());
    CHECK_THAT(ended.err, ContainsSubstring(said));
  }
  REQUIRE(kill(agent, SIGCONT) == 0);
  const int before = count(watching.out(), id);
  CHECK(eventually([&] { return count(watching.out(), id) > before; }));
  running.signal(SIGTERM);
  running.wait();
  CHECK(watching.wait().code == 0);
}

TEST_CASE("drun status shows the whole job once, on any of its nodes") {
  const std::string id = "whole-" + std::to_string(getpid());
  Nodes nodes(3, {"--rdzv-id=" + id, "--nproc-per-node=2", "--max-restarts=3"});
  for (int node = 0; node < 3; ++node) nodes.start(node, {}, "echo up; exec sleep 60");
  for (int node = 0; node < 3; ++node) REQUIRE(nodes[node].prints("up"));
  const auto all_run = [](const json& job) {
    return std::all_of(job["nodes"].begin(), job["nodes"].end(),
                       [](const json& node) { return node["workers_running"] == 2; });
  };
  for (int node = 0; node < 3; ++node) {
    const Ended said = status({std::to_string(nodes[node].pid()), "--json"});
    REQUIRE(said.code == 0);
    const json job = json::parse(said.out);
    CHECK(job["schema"] == "drun.job/1");
    CHECK(job["drun_pid"] == nodes[node].pid());
    CHECK(job["phase"] == "running");
    CHECK(job["world_size"] == 6);
    CHECK(job["restarts_left"] == 3);
    REQUIRE(job["nodes"].size() == 3);
    CHECK(job["nodes"][2]["node_rank"] == 2);
    CHECK(all_run(job));
  }
  const Ended once = status({id, "--json"});
  CHECK(std::count(once.out.begin(), once.out.end(), '\n') == 1);
  const Ended each = status({id, "--json", "--node"});
  CHECK(std::count(each.out.begin(), each.out.end(), '\n') == 3);

  // A suspended agent is shown as such, and the other nodes are still shown.
  const json still = json::parse(status({std::to_string(nodes[2].pid()), "--json", "--node"}).out);
  const pid_t agent = still["agent_pid"].get<pid_t>();
  REQUIRE(kill(agent, SIGSTOP) == 0);
  const json job = json::parse(status({std::to_string(nodes[0].pid()), "--json"}).out);
  kill(agent, SIGCONT);
  CHECK(job["nodes"][2]["state"] == "silent");
  CHECK(job["nodes"][1]["workers_running"] == 2);
  nodes[0].signal(SIGTERM);
  nodes.wait();
}

TEST_CASE("the status of a node that waits for others names the missing nodes") {
  const std::string id = "missing-" + std::to_string(getpid());
  Nodes nodes(3, {"--rdzv-id=" + id});
  nodes.start(0, {}, "exit 0");
  json job;
  REQUIRE(eventually([&] {
    const Ended said = status({id, "--json"});
    if (said.code == 0) job = json::parse(said.out);
    return said.code == 0 && job["joined_nodes"] == 1;
  }));
  CHECK(job["phase"] == "joining");
  CHECK(job["missing_node_ranks"] == json{1, 2});
  CHECK_THAT(status({id}).out, ContainsSubstring("1 of 3 nodes there"));
  nodes[0].signal(SIGTERM);
  nodes.wait();
}

TEST_CASE("another user cannot see a job") {
  if (geteuid() != 0) {
    WARN("skipped: only root can be another user");
    return;
  }
  const std::string id = "hidden-" + std::to_string(getpid());
  Running running(shell_job({"--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(running.prints("up"));
  CHECK(status({id}).code == 0);
  // The program may be in a directory that the other user cannot read, but can be executed through
  // an open descriptor.
  const int program = open(drun_program().c_str(), O_PATH);
  const Ended stranger =
      run({.argv = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                    "/proc/self/fd/" + std::to_string(program), "status"}});
  close(program);
  CHECK(stranger.code == 1);
  CHECK(stranger.out.empty());
}

TEST_CASE("the events file describes a job line by line") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("events");
  const Ended ended = run(shell_job({"--nproc-per-node=2", "--max-restarts=1", "--events=" + path},
                                    "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 5"));
  REQUIRE(ended.code == 0);
  const std::vector<json> lines = lines_of(path);
  const std::vector<std::string> events = events_of(lines);
  CHECK(events.front() == "agent_started");
  CHECK(events.back() == "job_ended");
  CHECK(std::count(events.begin(), events.end(), "round_began") == 2);
  CHECK(std::count(events.begin(), events.end(), "worker_started") == 4);
  CHECK(std::count(events.begin(), events.end(), "worker_failed") >= 1);
  CHECK(std::count(events.begin(), events.end(), "round_ended") == 2);
  CHECK(lines.back()["outcome"] == "succeeded");
  CHECK(lines.back()["restarts"] == 1);
  struct stat file {};
  REQUIRE(stat(path.c_str(), &file) == 0);
  CHECK((file.st_mode & 0777) == 0600);
}

TEST_CASE("a running job serves health probes and Prometheus metrics over HTTP") {
  const std::string id = "asked-" + std::to_string(getpid());
  Running running(shell_job({"--nproc-per-node=2", "--rdzv-id=" + id, "--metrics-port=0"},
                            "echo up; exec sleep 60"));
  REQUIRE(running.prints("metrics are on port "));
  REQUIRE(running.prints("up"));
  const std::string err = running.err();
  const std::size_t at = err.find("metrics are on port ") + std::strlen("metrics are on port ");
  const RawSocket asking =
      RawSocket::connect_to(static_cast<std::uint16_t>(std::stoi(err.substr(at))));
  REQUIRE(asking.is_open());
  asking.say("GET /metrics HTTP/1.0\r\n\r\n");
  const std::string said = asking.hear(1 << 16);
  CHECK_THAT(said, ContainsSubstring("drun_info{run_id=\"" + id + "\""));
  CHECK_THAT(said, ContainsSubstring("\ndrun_job_nodes 1\n"));
  CHECK_THAT(said, ContainsSubstring("\ndrun_job_workers 2\n"));
  CHECK_THAT(said, ContainsSubstring("drun_worker_running{rank=\"1\",local_rank=\"1\"} 1\n"));
  const RawSocket status =
      RawSocket::connect_to(static_cast<std::uint16_t>(std::stoi(err.substr(at))));
  REQUIRE(status.is_open());
  status.say("GET /status HTTP/1.0\r\n\r\n");
  const std::string shown = status.hear(1 << 16);
  CHECK_THAT(shown, ContainsSubstring("\"command\":[\"sh\"]") && !ContainsSubstring("exec sleep"));
  // It listens on loopback only.
  const std::string port = std::to_string(std::stoi(err.substr(at)));
  const Ended listening = run(Launch{.argv = {"ss", "-Hltn", "sport", "=", ":" + port}});
  INFO(listening.out);
  CHECK_THAT(listening.out, ContainsSubstring("127.0.0.1:" + port) &&
                                !ContainsSubstring("*:" + port) &&
                                !ContainsSubstring("0.0.0.0:" + port));
  running.signal(SIGTERM);
  running.wait();
}

TEST_CASE("three nodes can write to one events file") {
  Nodes nodes(3);
  const std::string path = nodes.directory().file("events");
  for (int node = 0; node < 3; ++node) nodes.start(node, {"--events=" + path}, "exit 0");
  for (const Ended& ended : nodes.wait()) CHECK(ended.code == 0);
  const std::vector<std::string> events = events_of(lines_of(path));  // each line parses
  CHECK(std::count(events.begin(), events.end(), "job_ended") == 3);
}

TEST_CASE("an unusable events file is rejected before anything starts") {
  const TemporaryDirectory directory;
  const std::string target = directory.file("target");
  const std::string link = directory.file("link");
  REQUIRE(symlink(target.c_str(), link.c_str()) == 0);
  const Ended linked = run(shell_job({"--events=" + link}, "echo started"));
  CHECK(linked.code == 125);
  CHECK(linked.out.empty());
  CHECK_THAT(linked.err, ContainsSubstring("--events=" + link + ": it is a symbolic link"));
  CHECK(access(target.c_str(), F_OK) != 0);
  const Ended nowhere = run(shell_job({"--events=/nowhere/file"}, "echo started"));
  CHECK(nowhere.code == 125);
  CHECK_THAT(nowhere.err, ContainsSubstring("no such file or directory"));
}

TEST_CASE("a full disk for events does not stop the job") {
  const Ended ended = run(shell_job({"--events=/dev/full"}, "echo done"));
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("done"));
  CHECK_THAT(ended.err, ContainsSubstring("events are missing from there"));
}

TEST_CASE("a text that does not fit on the disk is a failure") {
  for (const std::string command : {"--help", "--version", "--dry-run=json train", "list"}) {
    Launch launch;
    launch.argv = {"sh", "-c", drun_program() + " " + command + " > /dev/full"};
    const Ended ended = run(launch);
    INFO(command << "\n" << ended.err);
    CHECK(ended.code == 125);
    CHECK_THAT(ended.err, ContainsSubstring("cannot write to stdout: no space left on device"));
  }
}

TEST_CASE(
    "a table of drun doctor that does not fit on the disk is a failure, but not a closed pipe") {
  for (const std::string options : {"", "--json", "--local-nodes=2"}) {
    const auto end_with = [&options](const std::string& reader) {
      Launch launch = job({}, {"true"});  // for its environment
      launch.argv = {
          "sh", "-c",
          "{ " + drun_program() + " doctor " + options + "; echo code $? >&2; } " + reader};
      return run(launch, 60s).err;
    };
    CHECK_THAT(end_with("> /dev/full"),
               ContainsSubstring("no space left on device") && EndsWith("code 125\n"));
    CHECK_THAT(end_with("| true"), EndsWith("code 0\n") && !ContainsSubstring("console is closed"));
  }
}

}  // namespace drun::testing
