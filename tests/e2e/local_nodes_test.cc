// Tests --local-nodes: several nodes on this machine from one command.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"

namespace drun::testing {
namespace {

namespace fs = std::filesystem;

Ended run_nodes(const Words& options, const std::string& script) {
  return run(shell_job(options, script), 60s);
}

// The topmost directories, as /dev/shm/drun_scratch.nodes.x, of the files that the workers wrote
// down.
std::set<fs::path> scratch_of(const TemporaryDirectory& directory) {
  std::set<fs::path> found;
  for (const auto& entry : fs::directory_iterator(directory.path())) {
    std::istringstream names(read_file(entry.path().string()));
    for (std::string name; names >> name;) {
      fs::path path = name;
      while (path.has_relative_path() && !path.filename().string().starts_with("drun_"))
        path = path.parent_path();
      while (path.parent_path().filename().string().starts_with("drun_")) path = path.parent_path();
      if (path.has_relative_path()) found.insert(path);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("local nodes give workers the environment of several nodes") {
  const Ended ended = run_nodes(
      {"--local-nodes=3", "--nproc-per-node=4"},
      "echo \"$GROUP_RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $RANK $WORLD_SIZE $GROUP_WORLD_SIZE "
      "$MASTER_ADDR.\"");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  for (int rank = 0; rank < 12; ++rank) {
    const std::string number = std::to_string(rank);
    const std::string node = std::to_string(rank / 4);
    const std::string local = std::to_string(rank % 4);
    CHECK_THAT(ended.out, ContainsSubstring("[node" + node + ":" + number + "]: " + node + " " +
                                            local + " 4 " + number + " 12 3 127.0.0.1.\n"));
  }
  CHECK(count(ended.out, "\n") == 12);
}

TEST_CASE("each local node has a log directory and a share of the cores") {
  const TemporaryDirectory directory;
  const Ended ended = run_nodes(
      {"--local-nodes=2", "--nproc-per-node=2", "--tee=3", "--log-dir=" + directory.file("logs")},
      "grep Cpus_allowed_list /proc/self/status; echo rank $RANK");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string node = "node" + std::to_string(rank / 2);
    std::string found;
    for (const auto& run : fs::directory_iterator(directory.file("logs/" + node)))
      found +=
          read_file(run.path().string() + "/attempt_0/" + std::to_string(rank % 2) + "/stdout.log");
    CHECK_THAT(found, ContainsSubstring("rank " + std::to_string(rank) + "\n"));
  }
  std::set<std::string> shares;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find("Cpus_allowed_list:"); at != line.npos)
      shares.insert(line.substr(at));
  CHECK(shares.size() == (sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1));
}

TEST_CASE("a failure on a local node sets the exit code, the report and the root cause") {
  const TemporaryDirectory directory;
  const std::string report = directory.file("report.json");
  const Ended ended = run_nodes({"--local-nodes=3", "--report=" + report},
                                "[ $RANK != 1 ] || { echo why >&2; exit 41; }; exec sleep 600");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 41);
  CHECK(count(ended.err, ": rank 1 on node 1 (node1) exited with code 41\n") == 1);
  CHECK_THAT(ended.err, ContainsSubstring("[node1:1]: why\n"));
  const auto json = nlohmann::json::parse(read_file(report), nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["exit_code"] == 41);
  CHECK(json["nodes"] == 3);
  CHECK(json["root_cause"]["host"] == "node1");
}

TEST_CASE("jobs of local nodes can run concurrently, also with the store in a worker") {
  const TemporaryDirectory directory;
  const auto two = [&directory](const Words& options) {
    // Each job waits for the other.
    const std::string script =
        ": >" + directory.file("${RUN}_$RANK") + "; for i in 1 2 3 4 5 6 7 8 9 10; do [ -e " +
        directory.file("${OTHER}_$RANK") + " ] && exit 0; sleep 1; done; exit 3";
    Running first(shell_job(options + Words{"-x", "RUN=a", "-x", "OTHER=b"}, script));
    Running second(shell_job(options + Words{"-x", "RUN=b", "-x", "OTHER=a"}, script));
    CHECK(first.wait(40s).code == 0);
    CHECK(second.wait(40s).code == 0);
  };
  two({"--local-nodes=2"});
  for (const char* file : {"a_0", "a_1", "b_0", "b_1"}) fs::remove(directory.file(file));
  two({"--local-nodes=2", "--store=worker"});
}

TEST_CASE("a signal to a job of local nodes ends all of its processes and removes its files") {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const TemporaryDirectory directory;
    // A background process of a shell ignores SIGINT.
    Launch launch = shell_job(
        {"--local-nodes=3", "--nproc-per-node=2", "--shutdown-timeout=2", "--hang-timeout=60"},
        "setsid sleep 600 & echo $TORCHELASTIC_ERROR_FILE "
        "$DRUN_HEARTBEAT_FILE $DRUN_PROGRESS_FILE >" +
            directory.file("$RANK.new") + "; mv " + directory.file("$RANK.new ") +
            directory.file("$RANK") + "; wait");
    const std::string mark = directory.path();
    launch.environment["DRUN_TEST_MARK"] = mark;
    const auto left = [&mark] { return processes_with("DRUN_TEST_MARK=" + mark); };
    Running job(launch);
    REQUIRE(eventually(
        [&directory] {
          for (int rank = 0; rank < 6; ++rank)
            if (!fs::exists(directory.file(std::to_string(rank)))) return false;
          return true;
        },
        20s));
    CHECK(left().size() >= 6 * 2 + 3);
    const std::set<fs::path> scratch = scratch_of(directory);
    CHECK_FALSE(scratch.empty());
    for (const fs::path& each : scratch) CHECK(fs::exists(each));
    job.signal(signal);
    const Ended ended = job.wait(20s);
    INFO(signal << ended.err);
    CHECK(ended.code == 128 + signal);
    CHECK(eventually([&left] { return left().empty(); }));
    for (const fs::path& each : scratch) {
      INFO(each);
      CHECK(eventually([&each] { return !fs::exists(each); }));
    }
  }
}

TEST_CASE("a job of local nodes is found by the pid of the drun that started it") {
  const std::string id = "local-" + std::to_string(getpid());
  Running running(shell_job({"--local-nodes=2", "--rdzv-id=" + id}, "echo up; exec sleep 60"));
  REQUIRE(eventually([&] { return count(running.out(), "up") == 2; }));
  const std::string pid = std::to_string(running.pid());
  const Ended status = run({.argv = {drun_program(), "status", pid}});
  CHECK(status.code == 0);
  CHECK_THAT(status.out, ContainsSubstring(id) && ContainsSubstring("2 workers on 2 nodes"));
  const Ended stopped = run({.argv = {drun_program(), "stop", pid}});
  CHECK(stopped.code == 0);
  CHECK(stopped.out == "stopped " + id + "\n");
  CHECK(running.wait().code == 143);
}

TEST_CASE("the signals of --signals-to-handle stop a job of local nodes") {
  Running running(shell_job({"--local-nodes=2", "--signals-to-handle=SIGTERM,SIGUSR1"},
                            "trap 'echo saved; exit 0' USR1; echo up; sleep 60 & wait"));
  REQUIRE(eventually([&] { return count(running.out(), "up") == 2; }));
  running.signal(SIGUSR1);
  const Ended ended = running.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.code == 128 + SIGUSR1);
  CHECK_THAT(ended.err, ContainsSubstring("stopped by SIGUSR1"));
}

TEST_CASE("an elastic job of local nodes survives the loss of any node") {
  const TemporaryDirectory directory;
  // Kills the first node: its agent and all of its processes.
  const Ended ended =
      run_nodes({"--local-nodes=2:4", "--max-restarts=3"},
                "if [ $TORCHELASTIC_RESTART_COUNT = 0 ] && [ ! -e " + directory.file("lost") +
                    " ]; then [ $GROUP_RANK != 0 ] || { : >" + directory.file("lost") +
                    "; kill -9 $PPID; }; exec sleep 600; fi; echo \"round $GROUP_WORLD_SIZE\"");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, "round 3\n") == 3);
  CHECK(count(ended.err, "its agent ended; the job continues if enough nodes are left") == 1);
}

TEST_CASE("log lines of local nodes name their node") {
  const auto lines = [](const std::string& nodes) {
    const Ended ended = run_nodes({"--local-nodes=" + nodes, "--log-level=debug"}, "true");
    CHECK(ended.code == 0);
    return ended.err;
  };
  CHECK_THAT(lines("2"), ContainsSubstring(" debug node 0: "));
  CHECK_THAT(lines("1:2"), ContainsSubstring(" info node0: starting round 0: ") &&
                               ContainsSubstring(" info node1: starting round 0: "));
}

TEST_CASE("options that cannot be combined with --local-nodes are named") {
  const auto refused = [](const Words& options, const std::string& text) {
    const Ended ended = run(job(options, {"true"}));
    INFO(ended.err);
    CHECK(ended.code == 2);
    CHECK_THAT(ended.err, ContainsSubstring(text));
  };
  refused({"--local-nodes=0"}, "--local-nodes=0: expected a number of nodes");
  refused({"--local-nodes=3,net"}, "--local-nodes=3,net: expected");
  refused({"--local-nodes=4:2"}, "MIN exceeds MAX");
  refused({"--local-nodes=2", "--hosts=a,b"}, "--local-nodes and --hosts: all nodes are on this");
  refused({"--local-nodes=2", "--nnodes=2"}, "--local-nodes and --nnodes");
  refused({"--local-nodes=2", "--node-rank=1"}, "--node-rank: with --local-nodes");
  refused({"--local-nodes=2", "--metrics-port=0"}, "--metrics-port");
}

TEST_CASE("faults of ranks are injected, and the report contains their effects") {
  const TemporaryDirectory directory;
  const std::string report = directory.file("report.json");
  const auto inject = [&report](const std::string& faults, const Words& more) {
    return run_nodes(
        Words{"--local-nodes=2", "--nproc-per-node=2", "--inject=" + faults, "--report=" + report} +
            more,
        "while sleep 0.1; do :; done");  // only a stopped rank has no sign of life
  };
  struct Case {
    std::string fault;
    int code;
    std::string ended;
    Words more{};
  };
  const std::vector<Case> cases{
      {"kill:rank=3@500ms", 137, "signal 9 (SIGKILL, killed), injected by --inject"},
      {"exit:rank=1:code=9@500ms", 9, "exit code 9, injected by --inject"},
      {"oom:rank=2@500ms", 137, "out of memory (signal 9 (SIGKILL, killed)), injected by --inject"},
      {"stop:rank=0@500ms", 123, "hung: ", {"--hang-timeout=2"}}};
  for (const Case& each : cases) {
    const Ended ended = inject(each.fault + ",kill:rank=0@500s", each.more);
    INFO(each.fault << ended.out << ended.err);
    CHECK(ended.code == each.code);
    CHECK_THAT(ended.err, ContainsSubstring("\n  injected   "));
    const auto json = nlohmann::json::parse(read_file(report), nullptr, false);
    REQUIRE(json.is_object());
    REQUIRE(json["faults"].size() == 2);
    CHECK(json["faults"][0]["fault"] == each.fault);
    CHECK(json["faults"][0]["time"].is_string());
    CHECK_THAT(json["faults"][0]["followed"].get<std::string>(),
               ContainsSubstring("the job failed: rank "));
    CHECK(json["faults"][1]["time"].is_null());
    CHECK(json["root_cause"]["injected"] == each.fault);
    CHECK_THAT(json["root_cause"]["ended"].get<std::string>(),
               ContainsSubstring(each.ended) && ContainsSubstring("(" + each.fault + ")"));
    CHECK(json["root_cause"]["out_of_memory"] == each.fault.starts_with("oom"));
  }
}

TEST_CASE("faults for one round are injected in that round and followed by restarts") {
  const TemporaryDirectory directory;
  const std::string report = directory.file("report.json");
  const Ended ended = run_nodes({"--local-nodes=2", "--max-restarts=2", "--report=" + report,
                                 "--inject=kill:rank=1@300ms,exit:rank=0@round=1+300ms"},
                                "[ $TORCHELASTIC_RESTART_COUNT = 2 ] || exec sleep 600");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  const auto json = nlohmann::json::parse(read_file(report), nullptr, false);
  REQUIRE(json.is_object());
  REQUIRE(json["faults"].size() == 2);
  CHECK(json["faults"][0]["round"] == 0);
  CHECK_THAT(json["faults"][0]["followed"].get<std::string>(), ContainsSubstring("round 1 began"));
  CHECK(json["faults"][1]["round"] == 1);
  CHECK_THAT(json["faults"][1]["followed"].get<std::string>(), ContainsSubstring("round 2 began"));
}

TEST_CASE("an injected node loss ends a fixed job, and an elastic job continues without the node") {
  const TemporaryDirectory directory;
  Launch launch = shell_job({"--local-nodes=3", "--inject=kill:node=1@500ms"}, "exec sleep 600");
  launch.environment["DRUN_TEST_MARK"] = directory.path();
  const auto is_left = [&] {
    return !processes_with("DRUN_TEST_MARK=" + directory.path()).empty();
  };
  const Ended killed = run(launch, 60s);
  INFO(killed.err);
  CHECK(killed.code == 122);
  CHECK_THAT(killed.err, ContainsSubstring("lost node 1 (node1)") &&
                             ContainsSubstring("injected by --inject (kill:node=1@500ms)"));
  CHECK(eventually([&] { return !is_left(); }));

  launch = shell_job({"--local-nodes=3", "--heartbeat-timeout=2", "--inject=freeze:node=2@500ms"},
                     "exec sleep 600");
  launch.environment["DRUN_TEST_MARK"] = directory.path();
  const Ended frozen = run(launch, 60s);
  INFO(frozen.err);
  CHECK(frozen.code == 122);
  CHECK_THAT(frozen.err, ContainsSubstring("lost node 2 (node2)"));
  CHECK_THAT(frozen.err, ContainsSubstring("(freeze:node=2@500ms)"));
  CHECK(eventually([&] { return !is_left(); }));

  const Ended elastic =
      run_nodes({"--local-nodes=2:4", "--max-restarts=1", "--inject=kill:node=1@500ms"},
                "[ $GROUP_WORLD_SIZE = 3 ] || exec sleep 600; echo \"in $GROUP_WORLD_SIZE\"");
  INFO(elastic.out << elastic.err);
  CHECK(elastic.code == 0);
  CHECK(count(elastic.out, "in 3\n") == 3);
  CHECK_THAT(elastic.err, ContainsSubstring("with 3 workers on 3 nodes"));
  CHECK(count(elastic.err, "injecting kill:node=1@500ms (--inject)\n") == 1);
}

TEST_CASE("invalid faults are named before anything starts") {
  const auto refused = [](const Words& options, const std::string& text) {
    const TemporaryDirectory directory;
    const Ended ended = run(shell_job(options, ": >" + directory.file("started")));
    INFO(ended.err);
    CHECK(ended.code == 2);
    CHECK_THAT(ended.err, ContainsSubstring(text));
    CHECK(!fs::exists(directory.file("started")));
  };
  refused({"--inject=kill:rank=x@1s"}, "\"rank=x\": expected rank=N or node=N");
  refused({"--inject=kill:rank=1@1s"}, "\"rank=1\": the job has ranks 0 to 0");
  refused({"--local-nodes=2", "--inject=kill:node=2@1s"}, "\"node=2\": the job has nodes 0 to 1");
  refused({"--local-nodes=2", "--inject=cut:node=1@1s"}, "write --local-nodes=N,netns");
}

TEST_CASE("a report named job.xml is JUnit XML") {
  const TemporaryDirectory directory;
  const std::string report = directory.file("job.xml");
  const auto xml_of = [&report](const std::string& script) {
    run_nodes({"--local-nodes=2", "--report=" + report}, script);
    return read_file(report);
  };
  const std::string passed = xml_of("true");
  CHECK_THAT(passed, ContainsSubstring("tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"0\""));
  const std::string failed = xml_of("[ $RANK = 1 ] && { echo '<why>' >&2; exit 7; }; sleep 600");
  CHECK_THAT(failed, ContainsSubstring("message=\"rank 1 on node 1 (node1): exit code 7\""));
  CHECK_THAT(failed, ContainsSubstring("stderr | &lt;why&gt;"));
  CHECK(count(failed, "<skipped") == 1);
  fs::remove(report);
  CHECK(run(job({"--report=" + report}, {"true"})).code == 0);
  CHECK_THAT(read_file(report), ContainsSubstring("<testsuite "));
}

TEST_CASE("with netns each node has a separate network, which is removed at the end",
          "[namespaces]") {
  if (geteuid() != 0) {
    WARN("skipped: network namespaces need root");
    return;
  }
  const TemporaryDirectory directory;
  const auto nodes_network = [] {
    return run(Launch{.argv = {"sh", "-c", "ip -o link; ip netns; lsns -t net -n -o NS | sort"}})
        .out;
  };
  const std::string before = nodes_network();
  const Ended ended =
      run_nodes({"--local-nodes=3,netns"},
                "echo \"$MASTER_ADDR:$MASTER_PORT $(hostname -I) $GLOO_SOCKET_IFNAME\"");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(ended.err.empty());
  for (int node = 0; node < 3; ++node) {
    const std::string number = std::to_string(node);
    CHECK_THAT(ended.out,
               ContainsSubstring("[node" + number + ":" + number + "]: 10.88.0.1:29500 10.88.0." +
                                 std::to_string(node + 1)));
  }
  CHECK(count(ended.out, " eth0\n") == 3);
  CHECK(nodes_network() == before);

  Launch launch =
      shell_job({"--local-nodes=2,netns"}, ": >" + directory.file("$RANK") + "; exec sleep 600");
  launch.environment["DRUN_TEST_MARK"] = directory.path();
  Running killed(launch);
  REQUIRE(eventually(
      [&] { return fs::exists(directory.file("0")) && fs::exists(directory.file("1")); }, 20s));
  killed.signal(SIGKILL);
  killed.wait(20s);
  CHECK(eventually([&] { return processes_with("DRUN_TEST_MARK=" + directory.path()).empty(); }));
  CHECK(eventually([&] { return nodes_network() == before; }));
}

TEST_CASE("a node whose network is cut is lost", "[namespaces]") {
  if (geteuid() != 0) {
    WARN("skipped: network namespaces need root");
    return;
  }
  const Ended ended =
      run_nodes({"--local-nodes=2:3,netns", "--heartbeat-timeout=2", "--max-restarts=1",
                 "--inject=cut:node=2@500ms"},
                "[ $GROUP_WORLD_SIZE = 2 ] || exec sleep 600; echo \"in $GROUP_WORLD_SIZE\"");
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.out, "in 2\n") == 2);
  CHECK_THAT(ended.err, ContainsSubstring("cut:node=2@500ms, node 2 (node2), round 0: "));
}

}  // namespace drun::testing
