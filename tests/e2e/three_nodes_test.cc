// Tests several nodes: they agree on the world and on one outcome.

#include <signal.h>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/raw_socket.h"

namespace drun::testing {
TEST_CASE("nodes can start in any order and have different numbers of workers") {
  const std::vector<int> order = GENERATE(std::vector{0, 1, 2}, std::vector{2, 1, 0});
  Nodes nodes(3);
  for (const int node : order) {
    nodes.start(node, {"--nproc_per_node=" + std::to_string(node + 1)},
                "echo $RANK/$WORLD_SIZE node $GROUP_RANK/$GROUP_WORLD_SIZE local "
                "$LOCAL_RANK/$LOCAL_WORLD_SIZE "
                "$MASTER_ADDR:$MASTER_PORT");
  }
  std::string all;
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 0);
    all += ended.out;
  }
  const std::string tail = " 127.0.0.1:" + std::to_string(nodes.port()) + "\n";
  for (const char* line :
       {"0/6 node 0/3 local 0/1", "1/6 node 1/3 local 0/2", "2/6 node 1/3 local 1/2",
        "3/6 node 2/3 local 0/3", "4/6 node 2/3 local 1/3", "5/6 node 2/3 local 2/3"}) {
    CHECK_THAT(all, ContainsSubstring(line + tail));
  }
}

TEST_CASE("a failure on one node is the root cause on all nodes, with its last stderr lines") {
  const int failing = GENERATE(0, 2);
  Nodes nodes(3, {"--nproc_per_node=2"});
  for (const int node : {0, 1, 2}) {
    nodes.start(node, {},
                "echo started; [ $LOCAL_RANK$GROUP_RANK = 1" + std::to_string(failing) +
                    " ] || exec sleep 600; sleep 0.4; echo my last words >&2; exit 33");
  }
  const std::vector<Ended> ends = nodes.wait();
  const auto common_report = [&nodes](std::size_t node) {
    nlohmann::json report = nodes.report(static_cast<int>(node));
    report.erase("phase_times_s");
    return report;
  };
  for (std::size_t node = 0; node < 3; ++node) {
    INFO("node " << node << "\n" << ends[node].err);
    CHECK(ends[node].code == 33);
    CHECK_THAT(ends[node].err, ContainsSubstring("my last words"));
    CHECK_THAT(ends[node].err, ContainsSubstring("rank " + std::to_string(2 * failing + 1)));
    CHECK(common_report(node) == common_report(0));
  }
  // The job's phases sum to the mean of its nodes' time, and none of them restarted.
  double of_nodes = 0;
  for (int node = 0; node < 3; ++node) {
    const nlohmann::json report = nodes.report(node);
    for (const auto& seconds : report.at("phase_times_s")) of_nodes += seconds.get<double>() / 3;
  }
  double of_job = 0;
  const nlohmann::json report = nodes.report(0);
  for (const auto& seconds : report.at("job_phase_times_s")) of_job += seconds.get<double>();
  CHECK(of_job <= of_nodes + 0.05);
  CHECK(of_job >= 0.5 * of_nodes);  // the nodes also count the time after the outcome
  CHECK(report.at("job_phase_times_s").at("restarting") == 0);
  CHECK(report.at("longest_phase_times").at("start").at("rank").is_number());
}

TEST_CASE("restarts happen on all nodes together and are counted once") {
  Nodes nodes(3, {"--max-restarts=2"});
  for (const int node : {2, 1, 0}) {
    nodes.start(node, {},
                "echo x >> $DIR/$TORCHELASTIC_RESTART_COUNT.$RANK; "
                "[ $TORCHELASTIC_RESTART_COUNT -ge 2 ] && exit 0; "
                "[ $RANK = $TORCHELASTIC_RESTART_COUNT ] || exec sleep 600; "
                "for r in 0 1 2; do until [ -s $DIR/$TORCHELASTIC_RESTART_COUNT.$r ]; do sleep "
                "0.01; done; done; exit 1");
  }
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
  for (const char* attempt : {"0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "2.0", "2.1", "2.2"}) {
    CHECK(read_file(nodes.directory().file(attempt)) == "x\n");
  }
}

TEST_CASE("a signal to one agent stops the whole job gracefully") {
  const int node_to_signal = GENERATE(0, 2);
  Nodes nodes(3);
  for (const int node : {0, 1, 2}) {
    nodes.start(node, {},
                "trap 'echo ended; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  }
  for (const int node : {0, 1, 2}) REQUIRE(nodes[node].prints("ready"));
  nodes[node_to_signal].signal(SIGTERM);
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 128 + SIGTERM);
    CHECK_THAT(ended.out, ContainsSubstring("ended"));
    CHECK_THAT(ended.err, ContainsSubstring("SIGTERM") &&
                              ContainsSubstring("node " + std::to_string(node_to_signal)));
  }
}

TEST_CASE("when an agent dies, the others stop their workers and name the lost node") {
  const int victim = GENERATE(0, 1);
  Nodes nodes(3);
  for (const int node : {0, 1, 2}) nodes.start(node, {}, "echo ready; exec sleep 600");
  for (const int node : {0, 1, 2}) REQUIRE(nodes[node].prints("ready"));
  nodes[victim].signal(SIGKILL);
  const std::vector<Ended> ends = nodes.wait();
  for (int node = 0; node < 3; ++node) {
    const Ended& ended = ends[static_cast<std::size_t>(node)];
    INFO("node " << node << "\n" << ended.err);
    if (node == victim) {
      CHECK(ended.code == 137);
    } else {
      CHECK(ended.code == 122);
      CHECK_THAT(ended.err, ContainsSubstring("node " + std::to_string(victim)));
    }
  }
}

TEST_CASE("a node with a rank that is taken is rejected, and the job continues without it") {
  Nodes nodes(3);
  nodes.start(0, {"--log-level=debug"}, "echo went");
  nodes.start(1, {}, "echo went");
  REQUIRE(nodes[0].prints("2 of 3 nodes"));
  Running intruder(nodes.launch(2, {"--node_rank=1"}, "echo went"));
  const Ended refused = intruder.wait();
  INFO(refused.err);
  CHECK(refused.code == 121);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, ContainsSubstring("node rank 1"));
  CHECK(nodes[0].prints("refused"));
  nodes.start(2, {}, "echo went");
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(ended.out == "went\n");
  }
}

TEST_CASE("a port in use is reported and nothing is started") {
  const RawSocket taken = RawSocket::listening();
  const Ended ended = run(
      shell_job({"--nnodes=1", "--master_port=" + std::to_string(taken.port())}, "echo started"));
  CHECK(ended.code == 125);
  CHECK(ended.out.empty());
  CHECK_THAT(ended.err,
             ContainsSubstring(std::to_string(taken.port())) && ContainsSubstring("in use"));
}

TEST_CASE("the error of the join timeout names the missing nodes") {
  Nodes nodes(3, {"--rdzv-conf=join_timeout=2"});
  nodes.start(0, {}, "echo started");
  nodes.start(2, {}, "echo started");
  for (const Ended& ended : nodes.wait()) {
    INFO(ended.err);
    CHECK(ended.code == 120);
    CHECK(ended.out.empty());
    CHECK_THAT(ended.err, ContainsSubstring("node 1"));
  }
}

TEST_CASE("if a worker hosts the store, MASTER_PORT is free for rank 0") {
  const int meeting_port = free_port();
  Nodes nodes(2, {"--store=worker", "--rdzv-endpoint=127.0.0.1:" + std::to_string(meeting_port)});
  const std::string script =
      "echo $TORCHELASTIC_USE_AGENT_STORE; exec python3 -c 'import os, socket\n"
      "where = (os.environ[\"MASTER_ADDR\"], int(os.environ[\"MASTER_PORT\"]))\n"
      "if os.environ[\"RANK\"] == \"0\":\n"
      "    server = socket.create_server(where)\n"
      "    peer = server.accept()[0]\n"
      "    peer.sendall(b\"mine\")\n"
      "else:\n"
      "    import time\n"
      "    while True:\n"
      "        try: peer = socket.create_connection(where); break\n"
      "        except ConnectionRefusedError: time.sleep(0.01)\n"
      "    print(peer.recv(9).decode(), flush=True)'";
  nodes.start(1, {}, script);
  nodes.start(0, {}, script);
  const std::vector<Ended> ends = nodes.wait();
  INFO(ends[0].err << ends[1].err);
  CHECK(ends[0].code == 0);
  CHECK(ends[0].out == "False\n");
  CHECK(ends[1].out == "False\nmine\n");
}

TEST_CASE("IPv6 addresses and names work as the master's address") {
  const std::string address = GENERATE("::1", "localhost", "[::1]");
  const std::string port = std::to_string(free_port());
  const auto launch = [&](const std::string& node) {
    return shell_job(
        {"--nnodes=2", "--node_rank=" + node, "--master_addr=" + address, "--master_port=" + port},
        "echo $MASTER_ADDR");
  };
  Running one(launch("1"));
  const Ended zero = run(launch("0"));
  INFO(zero.err);
  CHECK(zero.code == 0);
  CHECK(zero.out == (address == "[::1]" ? "::1" : address) + "\n");
  CHECK(one.wait().code == 0);
}

}  // namespace drun::testing
