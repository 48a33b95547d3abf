// Tests drun doctor on this machine, with nodes on loopback and in network namespaces.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/ssh_hosts.h"

namespace drun::testing {
namespace {

Words doctor(int count, int node, int port, const Words& more = {}) {
  return Words{drun_program(),
               "doctor",
               "--nnodes=" + std::to_string(count),
               "--node_rank=" + std::to_string(node),
               "--master_addr=127.0.0.1",
               "--master_port=" + std::to_string(port)} +
         more;
}

// Runs all nodes and returns their results in node order. `wraps[n]` is put before node n's
// command.
std::vector<Ended> run_doctor(int count, const std::map<int, Words>& wraps = {},
                              const Words& more = {}) {
  const int port = free_port();
  std::vector<std::unique_ptr<Running>> nodes;
  for (int node = 0; node < count; ++node) {
    Launch launch = job({}, {"true"});  // for its environment
    const auto wrap = wraps.find(node);
    launch.argv = (wrap == wraps.end() ? Words{} : wrap->second) + doctor(count, node, port, more);
    nodes.push_back(std::make_unique<Running>(launch));
  }
  std::vector<Ended> ended;
  for (const auto& node : nodes) ended.push_back(node->wait(60s));
  return ended;
}

}  // namespace

TEST_CASE("drun doctor on two healthy nodes prints a table on node 0 and exits with 0") {
  const std::vector<Ended> ended = run_doctor(2);
  INFO(ended[0].out << ended[0].err << ended[1].out << ended[1].err);
  CHECK(ended[0].code == 0);
  CHECK(ended[1].code == 0);
  CHECK_THAT(ended[0].out, StartsWith("2 nodes: drun ") && ContainsSubstring("\nnode  host") &&
                               ContainsSubstring("127.0.0.1") && ContainsSubstring("\n1     "));
  CHECK(ended[1].out.empty());
}

TEST_CASE("drun doctor names the node with fewer descriptors, and exits with 1 on every node") {
  const std::vector<Ended> ended =
      run_doctor(3, {{2, {"sh", "-c", "ulimit -n 512; exec \"$@\"", "sh"}}}, {"--json"});
  INFO(ended[0].out << ended[0].err << ended[2].err);
  for (const Ended& each : ended) CHECK(each.code == 1);
  const auto json = nlohmann::json::parse(ended[0].out);
  CHECK(json["is_well"] == false);
  CHECK(json["nodes"].size() == 3);
  CHECK(json["nodes"][2]["facts"]["nofile"] == 512);
  std::string problems;
  for (const auto& finding : json["findings"])
    if (finding["is_problem"] == true) problems += finding["what"].get<std::string>() + "\n";
  CHECK_THAT(problems,
             ContainsSubstring("node 2 (") && ContainsSubstring(" has nofile 512, the others "));
  // The node's own console shows it, too, and no report of a failed job.
  CHECK_THAT(ended[2].err, ContainsSubstring("has nofile 512") &&
                               !ContainsSubstring("job failed") && !ContainsSubstring("stopping"));
  CHECK_THAT(ended[1].err, !ContainsSubstring("nofile 512, "));
}

TEST_CASE("drun doctor with a job's command line checks its program and does not start it") {
  Launch launch = job({}, {"true"});
  launch.argv = {drun_program(), "doctor", "--nproc_per_node=4", "--max_restarts=3", "./not-there"};
  const Ended ended = run(launch);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 1);
  CHECK_THAT(ended.out, StartsWith("1 node: ") && ContainsSubstring("problem  node 0 (") &&
                            ContainsSubstring("./not-there: no such file"));
}

TEST_CASE("drun doctor over ssh checks two machines and prints one table", "[namespaces]") {
  const SshHosts hosts;
  if (!is_there(hosts)) return;
  Launch launch = hosts.launch({"--hosts=node[1-2]:4"}, {"true"});
  launch.argv.insert(std::find(launch.argv.begin(), launch.argv.end(), drun_program()) + 1,
                     "doctor");
  const Ended ended = run(launch, 60s);
  INFO(ended.out << ended.err);
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, StartsWith("2 nodes: ") && ContainsSubstring("\n1     node2 "));
  CHECK(ended.err.empty());
  CHECK(eventually([&] { return hosts.are_empty(); }));
}

TEST_CASE("a preflight check starts a job on good machines, and does not start it on bad ones") {
  Nodes nodes(2, {"--preflight", "--nproc_per_node=2", "--wrap=env", "--wrap-ranks=3,9"});
  const bool is_bad = GENERATE(false, true);
  nodes.start(0, {}, "echo runs $RANK $DRUN_ROUND $TORCHELASTIC_RESTART_COUNT");
  Launch other = nodes.launch(1, {}, "echo runs $RANK $DRUN_ROUND $TORCHELASTIC_RESTART_COUNT");
  if (is_bad) {
    const Words limited{"sh", "-c", "ulimit -n 512; exec \"$@\"", "sh"};
    other.argv = limited + other.argv;
  }
  const Ended second = run(other, 60s);
  const Ended first = nodes[0].wait(60s);
  INFO(first.out << first.err << second.out << second.err);
  CHECK(first.code == (is_bad ? 1 : 0));
  CHECK(second.code == (is_bad ? 1 : 0));
  CHECK_THAT(first.err, ContainsSubstring("preflight: looking at 2 machines"));
  if (is_bad) {
    CHECK_THAT(first.out + second.out, !ContainsSubstring("runs"));
    // The finding is shown as the root cause's last stderr lines.
    CHECK_THAT(first.err,
               ContainsSubstring("| problem  node 1 (") && ContainsSubstring("has nofile 512"));
  } else {
    CHECK_THAT(first.out + second.out,
               ContainsSubstring("runs 0 1 0") && ContainsSubstring("runs 3 1 0"));
    CHECK_THAT(first.err, ContainsSubstring("--wrap-ranks: there is no rank 9"));
  }
}

TEST_CASE("an elastic job continues without a node that fails the preflight check") {
  const std::string endpoint = "--rdzv-endpoint=localhost:" + std::to_string(free_port());
  const auto agent = [&endpoint](bool is_host, const Words& wrap) {
    Launch launch = shell_job({"--preflight", "--nnodes=1:2", "--rdzv-backend=c10d", endpoint,
                               "--rdzv-conf=is_host=" + std::to_string(is_host ? 1 : 0)},
                              "echo runs $GROUP_RANK of $GROUP_WORLD_SIZE in $DRUN_ROUND");
    launch.argv = wrap + launch.argv;
    return launch;
  };
  Running host(agent(true, {}));
  const Ended bad = run(agent(false, {"sh", "-c", "ulimit -n 512; exec \"$@\"", "sh"}), 60s);
  const Ended ended = host.wait(60s);
  INFO(bad.err << ended.err);
  CHECK(bad.code == 1);
  CHECK(ended.code == 0);
  CHECK(ended.out == "runs 0 of 1 in 2\n");
  CHECK_THAT(ended.err, ContainsSubstring("the job continues without node 1") &&
                            ContainsSubstring("the preflight check found a problem with it"));
}

}  // namespace drun::testing
