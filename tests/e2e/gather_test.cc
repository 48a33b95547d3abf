// Tests --gather-logs: all nodes' output on node 0's console and in its files.

#include <signal.h>

#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/job_traces.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

namespace fs = std::filesystem;

// Maps each rank to its lines without labels, in order of arrival.
std::map<int, std::vector<std::string>> lines_by_rank(const std::string& text) {
  static const std::regex kLabeled(R"(\[[^\]]+:(\d+)\]: (.*))");
  std::map<int, std::vector<std::string>> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    INFO(line);
    REQUIRE(std::regex_match(line, found, kLabeled));
    lines[std::stoi(found[1])].push_back(found[2]);
  }
  return lines;
}

// Returns the total of all processes.
long written_bytes(const std::vector<pid_t>& pids) {
  long sum = 0;
  for (const pid_t pid : pids) {
    std::istringstream io(read_file("/proc/" + std::to_string(pid) + "/io"));
    for (std::string word; io >> word;) {
      long bytes = 0;
      if (word == "wchar:" && io >> bytes) sum += bytes;
    }
  }
  return sum;
}

// Waits until the processes of the job with this DIR write nothing more.
bool stands_still(const std::string& directory) {
  long before = 0;
  int still = 0;
  return eventually([&] {
    const long now = written_bytes(processes_with("DIR=" + directory));
    still = std::exchange(before, now) == now && now > 1000000 ? still + 1 : 0;
    return still == 20;
  });
}

// The agent is the guardian's child.
pid_t agent_of(pid_t guardian) {
  const std::string pid = std::to_string(guardian);
  std::istringstream children(read_file("/proc/" + pid + "/task/" + pid + "/children"));
  pid_t child = 0;
  children >> child;
  return child;
}

}  // namespace

TEST_CASE("all nodes' lines reach node 0 whole and in order, with one file for each rank") {
  const bool has_secret = GENERATE(false, true);
  Nodes nodes(3, {"--nproc_per_node=2", "--gather-logs"});
  const std::string logs = nodes.directory().file("logs");
  write_file(nodes.directory().file("secret"), "a secret of 32 bytes at the least");
  fs::permissions(nodes.directory().file("secret"), fs::perms::owner_read);
  Words options{"--log-dir=" + logs};
  if (has_secret) options.push_back("--secret-file=" + nodes.directory().file("secret"));
  for (const int node : {2, 0, 1}) {
    nodes.start(node, options,
                "for i in $(seq 1 200); do echo $RANK line $i; done; echo $RANK err >&2; "
                "printf '%s last' $RANK");
  }
  const std::vector<Ended> ends = nodes.wait();
  std::vector<std::string> expected;
  for (std::size_t node = 0; node < ends.size(); ++node) {
    INFO(ends[node].err);
    CHECK(ends[node].code == 0);
    if (node > 0) CHECK(ends[node].out.empty());
    if (node > 0) CHECK_THAT(ends[node].err, !ContainsSubstring("]: "));
  }
  const auto lines = lines_by_rank(ends[0].out);
  REQUIRE(lines.size() == 6);
  const std::string place = only_entry(logs) + "/attempt_0/";
  for (const auto& [rank, of_rank] : lines) {
    const std::string name = std::to_string(rank);
    REQUIRE(of_rank.size() == 201);
    std::string whole;
    for (int i = 1; i <= 200; ++i) {
      const std::string line = name + " line " + std::to_string(i);
      CHECK(of_rank[static_cast<std::size_t>(i - 1)] == line);
      whole += line + "\n";
    }
    CHECK(of_rank.back() == name + " last");
    CHECK(read_file(place + name + "/stdout.log") == whole + name + " last");
    CHECK(read_file(place + name + "/stderr.log") == name + " err\n");
    CHECK_THAT(ends[0].err, ContainsSubstring(":" + name + "]: " + name + " err\n"));
  }
}

TEST_CASE("a suspended reader of node 0 blocks workers, but neither stops nor failures") {
  Nodes nodes(3, {"--gather-logs", "--output=lines", "--shutdown-timeout=5"});
  // Nodes 0 and 1 write 30 MB each; node 2 fails once they are blocked. Stopped workers leave a
  // file.
  const std::string script =
      "[ $RANK = 2 ] && { until [ -e $DIR/go ]; do sleep 0.02; done; exit 7; }; "
      "trap 'touch $DIR/stopped.$RANK; exit 0' TERM; " +
      built("bench/lines") + " write $RANK 300000 100 & wait $!; touch $DIR/through.$RANK; wait";
  for (const int node : {0, 1, 2}) nodes.start(node, {}, script);
  const auto& place = nodes.directory();
  const auto agent = [&](int node) { return agent_of(nodes[node].pid()); };
  REQUIRE(stands_still(place.path()));
  CHECK_FALSE(fs::exists(place.file("through.1")));
  write_file(place.file("go"), "");
  for (const char* rank : {"0", "1"}) {
    INFO("rank " << rank);
    CHECK(eventually([&] { return fs::exists(place.file(std::string("stopped.") + rank)); }));
  }
  // 60 MB are pending. The agent of node 2 buffers none of them.
  CHECK(peak_kib(agent(0)) < peak_kib(agent(2)) + 20000);
  CHECK(peak_kib(agent(1)) < peak_kib(agent(2)) + 20000);
  const std::vector<Ended> ends = nodes.wait();
  for (const Ended& ended : ends) {
    INFO(ended.err);
    CHECK(ended.code == 7);
  }
  CHECK(ends[0].out.size() > 1000000);
}

TEST_CASE("a second Ctrl-C ends a job whose reader is suspended, on all nodes") {
  Nodes nodes(2, {"--gather-logs"});
  const std::string& place = nodes.directory().path();
  nodes.start(0, {}, "echo $TORCHELASTIC_ERROR_FILE >" + place + "/error_file; exit 0");
  nodes.start(1, {}, "exec " + built("bench/lines") + " write 1 300000 100");
  REQUIRE(stands_still(place));
  const fs::path attempt = fs::path(read_file(place + "/error_file")).parent_path();
  CHECK(fs::exists(attempt));
  nodes[0].signal(SIGINT);
  // Two signals that drun sees within 200 ms count as one, and a busy machine delays the first.
  const auto first = std::chrono::steady_clock::now();
  REQUIRE(eventually([&] { return std::chrono::steady_clock::now() - first > 1s; }));
  CHECK_FALSE(processes_with("DIR=" + place).empty());  // a normal stop waits for the lines
  nodes[0].signal(SIGINT);
  CHECK(eventually([&] { return processes_with("DIR=" + place).empty(); }));
  for (const Ended& ended : nodes.wait()) CHECK(ended.code == 130);
  CHECK_FALSE(fs::exists(attempt));
}

TEST_CASE("output that a lost node had sent is shown") {
  Nodes nodes(2, {"--gather-logs"});
  nodes.start(0, {}, "echo ready; exec sleep 600");
  nodes.start(1, {}, "echo before the end; exec sleep 600");
  REQUIRE(nodes[0].prints("before the end\n"));
  nodes[1].signal(SIGKILL);
  const std::vector<Ended> ends = nodes.wait();
  INFO(ends[0].err);
  CHECK(ends[0].code == 122);
  CHECK(lines_by_rank(ends[0].out)[1] == Words{"before the end"});
}

TEST_CASE("a node that has lost node 0 prints its remaining output itself") {
  Nodes nodes(2, {"--gather-logs"});
  nodes.start(0, {}, "echo ready; exec sleep 600");
  nodes.start(1, {},
              "trap 'echo last words; exit 0' TERM; echo ready; while :; do sleep 0.02; done");
  REQUIRE(nodes[0].prints(":1]: ready\n"));
  nodes[0].signal(SIGKILL);
  const Ended ended = nodes[1].wait();
  INFO(ended.err);
  CHECK(ended.code == 122);
  CHECK(lines_by_rank(ended.out)[1].back() == "last words");
}

TEST_CASE("each round has separate files on node 0, for the ranks of all nodes") {
  Nodes nodes(2, {"--gather-logs", "--max-restarts=1"});
  const std::string logs = nodes.directory().file("logs");
  for (const int node : {0, 1}) {
    nodes.start(node, {"--log-dir=" + logs},
                "echo round $TORCHELASTIC_RESTART_COUNT rank $RANK; "
                "[ $TORCHELASTIC_RESTART_COUNT$RANK != 01 ]");
  }
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
  const std::string place = only_entry(logs);
  for (const char* round : {"0", "1"}) {
    const std::string text = read_file(place + "/attempt_" + round + "/1/stdout.log");
    CHECK(text == std::string("round ") + round + " rank 1\n");
  }
}

TEST_CASE("a node whose --gather-logs differs from node 0's is rejected") {
  const int without = GENERATE(0, 1);
  Nodes nodes(2, {"--rdzv-conf=join_timeout=2"});
  for (const int node : {0, 1})
    nodes.start(node, node == without ? Words{} : Words{"--gather-logs"}, "echo started");
  const std::vector<Ended> ends = nodes.wait();
  CHECK(ends[1].code == 121);
  CHECK_THAT(ends[1].err, ContainsSubstring("--gather-logs"));
  CHECK(ends[0].out.empty());
}

TEST_CASE("redirected streams of all nodes are written to node 0's files only") {
  Nodes nodes(2, {"--gather-logs", "--redirects=1"});
  const std::string logs = nodes.directory().file("logs");
  for (const int node : {0, 1})
    nodes.start(node, {"--log-dir=" + logs}, "echo out $RANK; echo err $RANK >&2");
  const std::vector<Ended> ends = nodes.wait();
  INFO(ends[0].err);
  CHECK(ends[0].code == 0);
  CHECK(ends[0].out.empty());
  CHECK_THAT(ends[0].err, ContainsSubstring("err 0\n") && ContainsSubstring("err 1\n"));
  CHECK(read_file(only_entry(logs) + "/attempt_0/1/stdout.log") == "out 1\n");
}

TEST_CASE("JSON output of all nodes goes to node 0's stdout, one object a line") {
  Nodes nodes(2, {"--gather-logs", "--output=json"});
  for (const int node : {0, 1}) nodes.start(node, {}, "echo out $RANK; echo err $RANK >&2");
  const std::vector<Ended> ends = nodes.wait();
  INFO(ends[0].err);
  REQUIRE(ends[0].code == 0);
  CHECK_THAT(ends[0].err, !ContainsSubstring("err 1"));
  std::istringstream in(ends[0].out);
  std::map<std::string, nlohmann::json> objects;
  for (std::string line; std::getline(in, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    REQUIRE(object.is_object());
    objects[object["text"]] = object;
  }
  REQUIRE(objects.size() == 4);
  CHECK(objects["err 1"]["stream"] == "stderr");
  CHECK(objects["err 1"]["node_rank"] == 1);
  CHECK(objects["out 0"]["rank"] == 0);
}

}  // namespace drun::testing
