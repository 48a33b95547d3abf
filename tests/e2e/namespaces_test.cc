// Runs three nodes in separate network namespaces, connected by a bridge in a fourth one.

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "tests/support/catch.h"
#include "tests/support/job.h"
#include "tests/support/machine.h"
#include "tests/support/places.h"

namespace drun::testing {
namespace {

// Everything is in namespaces: the machine's network is not changed, and deleting the namespaces
// removes it all.
class Network {
 public:
  Network() : name_("drun" + std::to_string(getpid())) {
    is_up_ = shell("ip netns add " + name_ + "s && ip -n " + name_ +
                   "s link add br0 type bridge && ip -n " + name_ + "s link set br0 up");
    for (int node = 0; node < 3 && is_up_; ++node) is_up_ = add(node);
  }
  ~Network() {
    for (const char* suffix : {"0", "1", "2", "s"}) shell("ip netns del " + name_ + suffix);
  }
  bool is_up() const { return is_up_; }
  const std::string& why() const { return why_; }
  std::string address(int node) const { return "10.77.0." + std::to_string(node + 1); }
  Launch inside(int node, Launch launch) const {
    const Words enter = {"ip", "netns", "exec", name_ + std::to_string(node)};
    launch.argv.insert(launch.argv.begin(), enter.begin(), enter.end());
    return launch;
  }
  bool set_link(int node, const std::string& state) {
    return shell("ip -n " + name_ + "s link set v" + std::to_string(node) + " " + state);
  }
  // `ip -n NODE <words>`.
  bool change(int node, const std::string& words) {
    return shell("ip -n " + name_ + std::to_string(node) + " " + words);
  }

 private:
  bool add(int node) {
    const std::string number = std::to_string(node);
    const std::string own = name_ + number;
    return shell("ip netns add " + own + " && ip -n " + name_ + "s link add v" + number +
                 " type veth peer name eth0 netns " + own + " && ip -n " + name_ + "s link set v" +
                 number + " master br0 up && ip -n " + own + " addr add " + address(node) +
                 "/24 dev eth0 && ip -n " + own + " link set eth0 up && ip -n " + own +
                 " link set lo up");
  }
  bool shell(const std::string& script) {
    const Ended ended = run(Launch{.argv = {"sh", "-c", script}}, 10s);
    if (ended.code != 0) why_ = ended.err;
    return ended.code == 0;
  }

  std::string name_;
  std::string why_;
  bool is_up_ = false;
};

// Prints the reason if it is not.
bool is_there(const Network& network) {
  if (!network.is_up()) WARN("skipped: cannot make network namespaces: " << network.why());
  return network.is_up();
}

// Runs a job of two workers a node, with Gloo between the nodes, and checks that every node
// succeeds.
void run_all_reduce(Network& network) {
  std::vector<std::unique_ptr<Running>> nodes;
  for (const int node : {2, 1, 0}) {
    nodes.push_back(std::make_unique<Running>(network.inside(
        node, job({"--nnodes=3", "--node_rank=" + std::to_string(node), "--nproc_per_node=2",
                   "--master_addr=10.77.0.1", "--master_port=29500"},
                  {built("examples/all_reduce")}))));
  }
  for (const auto& node : nodes) {
    const Ended ended = node->wait(60s);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 0);
  }
}

}  // namespace

TEST_CASE("three nodes with different addresses form one world", "[namespaces]") {
  Network network;
  if (!is_there(network)) return;
  // Ranks exit right after a barrier, in any order. In none of many jobs may that count as a loss.
  for (int job = 0; job < 20; ++job) run_all_reduce(network);
}

TEST_CASE("with a secret only the job's nodes can use the store, from any of their addresses",
          "[namespaces]") {
  Network network;
  if (!is_there(network)) return;
  const TemporaryDirectory directory;
  const std::string secret = directory.file("secret");
  write_file(secret, "0123456789abcdef0123456789abcdef\n");
  REQUIRE(chmod(secret.c_str(), 0600) == 0);
  // Node 1's worker connects from a second address. Node 2 is not part of the job.
  REQUIRE(run(network.inside(1, {.argv = {"ip", "addr", "add", "10.77.0.99/24", "dev", "eth0"}}))
              .code == 0);
  const std::string ask =
      "import socket, sys\n"
      "s = socket.create_connection(('10.77.0.1', 29500), 10, (sys.argv[1], 0))\n"
      "s.sendall(bytes([0, 0xce, 0xf7, 0x85, 0x3c, 13, 1, 2, 3, 4]))\n"
      "try: answer = len(s.recv(4))\n"
      "except ConnectionResetError: answer = 0\n"
      "print(sys.argv[1], 'got', answer, flush=True)\n";
  write_file(directory.file("ask.py"), ask);
  std::vector<std::unique_ptr<Running>> nodes;
  for (const int node : {0, 1}) {
    const std::string from = node == 0 ? "10.77.0.1" : "10.77.0.99";
    Launch launch =
        shell_job({"--nnodes=2", "--node_rank=" + std::to_string(node), "--master_addr=10.77.0.1",
                   "--secret-file=" + secret},
                  "python3 $DIR/ask.py " + from + "; until [ -e $DIR/go ]; do sleep 0.02; done");
    launch.environment["DIR"] = directory.path();
    nodes.push_back(std::make_unique<Running>(network.inside(node, std::move(launch))));
  }
  CHECK(nodes[0]->prints("10.77.0.1 got 4"));
  CHECK(nodes[1]->prints("10.77.0.99 got 4"));
  const Ended stranger =
      run(network.inside(2, {.argv = {"python3", directory.file("ask.py"), network.address(2)}}));
  CHECK(stranger.out == "10.77.0.3 got 0\n");
  CHECK(nodes[0]->prints("dropped a store client from 10.77.0.3: no node of this job"));
  write_file(directory.file("go"), "");
  for (const auto& node : nodes) {
    const Ended ended = node->wait(30s);
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
}

TEST_CASE("a node without network is lost, and all nodes report it", "[namespaces]") {
  Network network;
  if (!is_there(network)) return;
  std::vector<std::unique_ptr<Running>> nodes;
  for (const int node : {0, 1, 2}) {
    nodes.push_back(std::make_unique<Running>(network.inside(
        node, shell_job({"--nnodes=3", "--node_rank=" + std::to_string(node),
                         "--master_addr=10.77.0.1", "--master_port=29500", "--heartbeat-timeout=2"},
                        "echo ready; exec sleep 600"))));
  }
  for (const auto& node : nodes) REQUIRE(node->prints("ready"));
  REQUIRE(network.set_link(1, "down"));
  const auto cut = std::chrono::steady_clock::now();
  CHECK(nodes[0]->prints("lost node 1"));
  CHECK(nodes[1]->prints("lost the coordinator"));
  // The heartbeat timeout and a second; the rest is for a busy machine.
  CHECK(std::chrono::steady_clock::now() - cut < 3s + test::scaled(2s));
  for (std::size_t node = 0; node < 3; ++node) {
    const Ended ended = nodes[node]->wait(30s);
    INFO("node " << node << "\n" << ended.err);
    CHECK(ended.code == 122);
    CHECK_THAT(ended.err, ContainsSubstring(node == 1 ? "node 0" : "node 1"));
  }
}

TEST_CASE("drun doctor reports a different MTU, and two nodes that cannot reach each other",
          "[namespaces]") {
  Network network;
  if (!is_there(network)) return;
  REQUIRE(network.change(1, "link set eth0 mtu 1200"));
  REQUIRE(network.change(2, "route add blackhole 10.77.0.2/32"));
  std::vector<std::unique_ptr<Running>> nodes;
  for (int node = 0; node < 3; ++node)
    nodes.push_back(std::make_unique<Running>(
        network.inside(node, job({"doctor", "--nnodes=3", "--node_rank=" + std::to_string(node),
                                  "--master_addr=10.77.0.1"},
                                 {}))));
  for (const auto& node : nodes) {
    const Ended ended = node->wait(60s);
    INFO(ended.out << ended.err);
    CHECK(ended.code == 1);
  }
  const std::string out = nodes[0]->out();
  INFO(out);
  CHECK_THAT(out, ContainsSubstring(") has MTU 1200, the others 1500; ") &&
                      ContainsSubstring("\n1     ") && ContainsSubstring("  eth0 1200  "));
  CHECK_THAT(out, ContainsSubstring(") at 10.77.0.2, eth0 and node 2 (") &&
                      ContainsSubstring(") at 10.77.0.3, eth0 do not reach each other: "));
}

TEST_CASE("an elastic job continues without a node whose cable was cut, and that node stops",
          "[namespaces]") {
  Network network;
  if (!is_there(network)) return;
  const TemporaryDirectory directory;
  std::vector<std::unique_ptr<Running>> nodes;
  for (int node = 0; node < 3; ++node) {
    Launch launch = shell_job({"--nnodes=2:3", "--rdzv-backend=c10d", "--rdzv-id=cut",
                               "--rdzv-endpoint=10.77.0.1", "--heartbeat-timeout=2"},
                              "echo ready $DRUN_ROUND of $GROUP_WORLD_SIZE; until [ -e $DIR/go ]; "
                              "do sleep 0.02; done");
    launch.environment["DIR"] = directory.path();
    nodes.push_back(std::make_unique<Running>(network.inside(node, std::move(launch))));
  }
  for (const auto& node : nodes) REQUIRE(node->prints("ready 0 of 3"));
  REQUIRE(network.set_link(2, "down"));
  CHECK(nodes[0]->prints("ready 1 of 2"));
  CHECK(nodes[1]->prints("ready 1 of 2"));
  const Ended cut = nodes[2]->wait(30s);
  INFO(cut.err);
  CHECK(cut.code == 122);
  CHECK_THAT(cut.err, ContainsSubstring("lost the coordinator") &&
                          ContainsSubstring("no sign of life for 2s"));
  write_file(directory.file("go"), "");
  for (const std::size_t node : {0U, 1U}) CHECK(nodes[node]->wait(30s).code == 0);
}

TEST_CASE("a disconnected coordinator stops, the others elect a new one, and it rejoins later",
          "[namespaces]") {
  Network network;
  if (!is_there(network)) return;
  const TemporaryDirectory directory;
  std::vector<std::unique_ptr<Running>> nodes;
  for (int node = 0; node < 3; ++node) {
    Launch launch =
        shell_job({"--nnodes=1:3", "--rdzv-backend=c10d", "--rdzv-id=cut",
                   "--rdzv-endpoint=10.77.0.1,10.77.0.2,10.77.0.3", "--heartbeat-timeout=2",
                   "--min-uptime=0.2"},
                  "trap 'echo stopped; exit 0' TERM; "
                  "echo ready $DRUN_ROUND of $GROUP_WORLD_SIZE at $MASTER_ADDR; "
                  "until [ -e $DIR/go.$GROUP_WORLD_SIZE.$MASTER_ADDR ]; do sleep 0.02; done");
    launch.environment["DIR"] = directory.path();
    nodes.push_back(std::make_unique<Running>(network.inside(node, std::move(launch))));
  }
  for (const auto& node : nodes) REQUIRE(node->prints("ready 0 of 3 at 10.77.0.1"));
  REQUIRE(network.set_link(0, "down"));
  CHECK(nodes[0]->prints("this node does not coordinate the job any more"));
  CHECK(nodes[0]->prints("stopped"));
  for (const std::size_t node : {1U, 2U}) CHECK(nodes[node]->prints("ready 1 of 2 at 10.77.0.2"));
  REQUIRE(network.set_link(0, "up"));
  for (const auto& node : nodes) CHECK(node->prints(" of 3 at 10.77.0.2"));
  write_file(directory.file("go.3.10.77.0.2"), "");
  for (const auto& node : nodes) {
    const Ended ended = node->wait(30s);
    INFO(ended.err);
    CHECK(ended.code == 0);
  }
}

}  // namespace drun::testing
