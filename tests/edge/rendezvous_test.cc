#include "rendezvous/member/coordinator_probe.h"
#include "rendezvous/net/connector.h"
#include "rendezvous/net/frame_reader.h"
#include "rendezvous/protocol/control_wire.h"
#include "tests/support/agents.h"
#include "tests/support/catch.h"

namespace drun::test {

using asio::ip::tcp;
using namespace std::chrono_literals;

TEST_CASE("agents that start before their coordinator wait for it, in any order") {
  std::uint16_t port = 0;
  {
    TestCluster probe(1);
    REQUIRE(probe.server);
    port = probe.port();
  }
  asio::io_context io(1);
  TestAgent second(io, join_spec(2, 3, port));
  TestAgent first(io, join_spec(1, 3, port));
  second.client.start();
  first.client.start();
  REQUIRE(run_until(io, [&] { return first.log.has("connection refused"); }));
  LogLines log;
  auto server = rendezvous::Server::open(io, join_spec(0, 3, port), log.log(), [] {});
  REQUIRE(server.has_value());
  TestAgent master(io, join_spec(0, 3, port));
  master.client.start();
  REQUIRE(run_until(io, [&] { return master.world && first.world && second.world; }));
  CHECK(first.world->base_rank == 2);
  CHECK(second.world->base_rank == 4);
  CHECK(second.world->world_size == 6);
  CHECK(second.world->master_port == port);
  CHECK(second.world->use_agent_store);
}

TEST_CASE("a job whose workers all return succeeds on every node, and the coordinator ends last") {
  TestCluster cluster(3);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  for (auto& agent : cluster.agents) agent->client.report_success(0);
  REQUIRE(cluster.until_all_ended());
  for (auto& agent : cluster.agents) {
    CHECK(agent->outcome->ending == Ending(Succeeded{}));
    CHECK(agent->outcome_count == 1);
    CHECK(agent->stops.empty());
  }
  CHECK(cluster.until([&] { return cluster.is_finished; }));
}

TEST_CASE("a failure on one node stops the others, and all report the same complete root cause") {
  TestCluster cluster(3);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  cluster.agents[1]->fail();
  REQUIRE(cluster.until_all_ended());
  CHECK(cluster.agents[0]->stops == std::vector<int>{0});
  CHECK(cluster.agents[1]->stops.empty());
  CHECK(cluster.agents[2]->stops == std::vector<int>{0});
  for (auto& agent : cluster.agents) {
    CHECK(agent->outcome == cluster.agents[0]->outcome);
    const auto& failures = std::get<WorkersFailed>(agent->outcome->ending).failures;
    REQUIRE(failures.size() == 1);
    CHECK(failures[0].rank == 2);
    CHECK(failures[0].stderr_tail == std::vector<std::string>{"the last line"});
  }
}

TEST_CASE("the root cause is the first failure by steady clocks, on every node") {
  TestCluster cluster(3);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  cluster.agents[1]->stops_at_once = false;
  const auto now = std::chrono::steady_clock::now();
  // The victim reports first, and its wall clock is an hour behind.
  rendezvous::SeenFailure victim = cluster.agents[2]->failure(now);
  victim.failure.time -= std::chrono::hours(1);
  const rendezvous::SeenFailure cause =
      cluster.agents[1]->failure(now - std::chrono::milliseconds(200));
  cluster.agents[2]->client.report_failure(victim);
  REQUIRE(cluster.until([&] { return cluster.agents[0]->stops.size() == 1; }));
  cluster.agents[1]->client.report_stopped(0, {cause});
  cluster.agents[2]->client.report_stopped(0, {victim});
  REQUIRE(cluster.until_all_ended());
  for (auto& agent : cluster.agents) {
    const auto& failures = std::get<WorkersFailed>(agent->outcome->ending).failures;
    REQUIRE(failures.size() == 2);
    CHECK(failures[0] == [&] {
      Failure told = cause.failure;
      told.node_rank = 1;
      return told;
    }());
    CHECK(failures[1].node_rank == 2);
  }
}

TEST_CASE("a restart begins with an empty store and closes old store connections") {
  JoinSpec spec;
  spec.max_restarts = 1;
  TestCluster cluster(2, spec);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  tcp::socket old_worker(cluster.io);
  old_worker.connect({asio::ip::make_address("127.0.0.1"), cluster.port()});
  // A TCPStore client begins with VALIDATE and a magic number, then a PING with a nonce.
  const std::string hello("\x00\xCE\xF7\x85\x3C\x0D\x01\x00\x00\x00", 10);
  asio::write(old_worker, asio::buffer(hello));
  REQUIRE(cluster.until([&] { return old_worker.available() == 4; }));  // the store serves it
  cluster.agents[0]->fail();
  REQUIRE(cluster.until_round(1));
  char byte[8];
  error_code ec;
  old_worker.non_blocking(true);
  old_worker.read_some(asio::buffer(byte), ec);
  if (!ec) old_worker.read_some(asio::buffer(byte), ec);
  CHECK((ec == asio::error::eof || ec == asio::error::connection_reset));
}

TEST_CASE("a connection that was silent when a round began does not reach that round's store") {
  JoinSpec spec;
  spec.max_restarts = 1;
  TestCluster cluster(2, spec);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  tcp::socket old_worker(cluster.io);
  old_worker.connect({asio::ip::make_address("127.0.0.1"), cluster.port()});
  cluster.agents[0]->fail();
  REQUIRE(cluster.until_round(1));
  error_code ec;
  const std::string hello("\x00\xCE\xF7\x85\x3C\x0D\x01\x00\x00\x00", 10);
  asio::write(old_worker, asio::buffer(hello), ec);
  old_worker.non_blocking(true);
  char byte[8];
  CHECK(cluster.until([&] {
    const std::size_t count = old_worker.read_some(asio::buffer(byte), ec);
    return count > 0 || (ec && ec != asio::error::would_block);
  }));
  CHECK((ec == asio::error::eof || ec == asio::error::connection_reset));
}

TEST_CASE(
    "the store rejects clients from a lost member's address until a member joins from it again") {
  TestCluster cluster(3);
  const auto connect_from = [&](const char* address) {
    tcp::socket socket(cluster.io, {asio::ip::make_address(address), 0});
    socket.connect({asio::ip::make_address("127.0.0.1"), cluster.port()});
    return socket;
  };
  const auto join_from = [&](const char* address) {
    tcp::socket socket = connect_from(address);
    const rendezvous::Hello hello{
        .run_id = "edge", .node_rank = 1, .node_count = 3, .role = "", .host = "mute"};
    asio::write(socket, asio::buffer(rendezvous::encode_preamble() +
                                     rendezvous::encode(rendezvous::MemberMessage(hello))));
    return socket;
  };
  // Whether a store client at that address gets an answer. If not, its connection is closed.
  const auto is_served = [&](const char* address) {
    tcp::socket worker = connect_from(address);
    asio::write(worker, asio::buffer(std::string("\x00\xCE\xF7\x85\x3C\x0D\x01\x00\x00\x00", 10)));
    worker.non_blocking(true);
    char bytes[8];
    std::size_t count = 0;
    CHECK(cluster.until([&] {
      error_code ec;
      count = worker.read_some(asio::buffer(bytes), ec);
      return count > 0 || (ec && ec != asio::error::would_block);
    }));
    return count > 0;
  };
  CHECK(is_served("127.0.0.5"));
  tcp::socket member = join_from("127.0.0.5");
  REQUIRE(cluster.until([&] { return cluster.log.has("(mute) joined"); }));
  CHECK(is_served("127.0.0.5"));
  member.close();
  REQUIRE(cluster.until([&] { return cluster.log.has("(mute) left"); }));
  CHECK_FALSE(is_served("127.0.0.5"));
  CHECK(cluster.log.has("its workers may still be running"));
  CHECK(is_served("127.0.0.6"));
  cluster.log.lines.clear();
  member = join_from("127.0.0.5");
  REQUIRE(cluster.until([&] { return cluster.log.has("(mute) joined"); }));
  CHECK(is_served("127.0.0.5"));
}

TEST_CASE("a second node with the same rank is rejected and logged, and the job continues") {
  TestCluster cluster(2);
  cluster.add(1);
  REQUIRE(cluster.until([&] { return cluster.log.has("node 1 (host1) joined"); }));
  TestAgent second(cluster.io, join_spec(1, 2, cluster.port()));
  second.client.start();
  REQUIRE(cluster.until([&] { return second.outcome.has_value(); }));
  CHECK_THAT(second.error(), ContainsSubstring("node rank 1 is taken by host host1"));
  CHECK(cluster.log.has("refused node 1 (host1) at 127.0.0.1:"));
  cluster.add(0);
  REQUIRE(cluster.until_round(0));
}

TEST_CASE("a second node 0 at another address finds the first, and both report the conflict") {
  // All addresses are local on one host, so the probe is made to connect to local addresses.
  TestCluster cluster(2);
  cluster.add(0);
  REQUIRE(cluster.until([&] { return cluster.log.has("node 0 (host0) joined"); }));
  rendezvous::CoordinatorProbe probe(cluster.io);
  rendezvous::Hello hello{
      .run_id = "edge", .node_rank = 0, .node_count = 2, .role = "", .host = "b"};
  std::optional<Error> objection;
  const auto note = [&objection](const Error& error) { objection = error; };
  probe.start({"127.0.0.1", cluster.port()}, hello, nullptr, note,
              rendezvous::Connector::OwnAddresses::Connect);
  REQUIRE(cluster.until([&] { return objection.has_value(); }));
  CHECK_THAT(objection->message, ContainsSubstring("node rank 0 is taken by host host0"));
  CHECK(cluster.log.has("refused node 0 (b)"));
}

TEST_CASE("a node that is killed is lost to all the others") {
  TestCluster cluster(3);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  cluster.agents[2]->client.close();
  REQUIRE(cluster.until([&] { return cluster.agents[0]->outcome && cluster.agents[1]->outcome; }));
  CHECK(cluster.agents[1]->outcome->ending ==
        Ending(NodeLost{2, "host2", false, "its connection closed"}));
  CHECK(cluster.agents[1]->outcome == cluster.agents[0]->outcome);
}

TEST_CASE("if the coordinator dies, its members end after their workers have stopped") {
  TestCluster cluster(2);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  cluster.agents[1]->stops_at_once = false;
  cluster.server.reset();
  REQUIRE(cluster.until([&] { return !cluster.agents[1]->stops.empty(); }));
  CHECK_FALSE(cluster.agents[1]->outcome.has_value());
  cluster.agents[1]->client.report_stopped(0, {});
  REQUIRE(cluster.until_all_ended());
  CHECK(std::get<NodeLost>(cluster.agents[1]->outcome->ending).is_coordinator);
}

TEST_CASE("a signal to one agent ends the job on all nodes") {
  TestCluster cluster(3);
  cluster.add_all();
  REQUIRE(cluster.until_round(0));
  cluster.agents[1]->client.interrupt(15);
  REQUIRE(cluster.until_all_ended());
  for (auto& agent : cluster.agents) {
    CHECK(agent->outcome->ending == Ending(Interrupted{15, 1, "host1"}));
    CHECK(agent->stops == std::vector<int>{0});
  }
}

TEST_CASE("a job with missing nodes fails at the join timeout and names them") {
  JoinSpec spec;
  spec.join_timeout = 300ms;
  TestCluster cluster(3, spec);
  cluster.add(1);
  REQUIRE(cluster.until_all_ended());
  CHECK_THAT(cluster.agents[0]->error(),
             ContainsSubstring("node 0, node 2 missing (joined: node 1 (host1))"));
  CHECK(cluster.until([&] { return cluster.is_finished; }));
}

TEST_CASE("the error about a port in use names the port") {
  TestCluster cluster(1);
  asio::io_context io(1);
  const auto second = rendezvous::Server::open(io, join_spec(0, 1, cluster.port()), Log(), [] {});
  REQUIRE_FALSE(second.has_value());
  CHECK_THAT(second.error().message, ContainsSubstring(std::to_string(cluster.port())));
}

TEST_CASE("if a worker hosts the store, the port serves members only") {
  JoinSpec spec;
  spec.store_host = StoreHost::Worker;
  TestCluster cluster(1, spec);
  tcp::socket worker(cluster.io);
  worker.connect({asio::ip::make_address("127.0.0.1"), cluster.port()});
  asio::write(worker, asio::buffer("\x00", 1));
  REQUIRE(cluster.until([&] { return cluster.log.has("dropped a store client"); }));
  cluster.add(0);
  REQUIRE(cluster.until_round(0));
  CHECK_FALSE(cluster.agents[0]->world->use_agent_store);
}

TEST_CASE("nodes can connect over IPv6") {
  JoinSpec coordinator;
  coordinator.master_addr = "::1";
  TestCluster cluster(2, coordinator);
  error_code ec;
  tcp::socket probe(cluster.io);
  probe.connect({asio::ip::make_address("::1"), cluster.port()}, ec);
  if (ec) {
    WARN("skipped: no IPv6 loopback on this machine: " + ec.message());
    return;
  }
  cluster.add(0);
  JoinSpec spec = join_spec(1, 2, cluster.port());
  spec.endpoint.host = "::1";
  spec.master_addr = "::1";
  cluster.add(spec);
  REQUIRE(cluster.until_round(0));
  CHECK(cluster.agents[1]->world->master_addr == "::1");
}

TEST_CASE(
    "a name is looked up case-insensitively, and an unresolvable one is retried until the "
    "timeout") {
  TestCluster cluster(2);
  cluster.add(0);
  JoinSpec spec = join_spec(1, 2, cluster.port());
  spec.endpoint.host = "no-such-host.invalid";
  spec.join_timeout = 400ms;
  cluster.add(spec);
  REQUIRE(cluster.until([&] { return cluster.agents[1]->outcome.has_value(); }));
  CHECK_THAT(cluster.agents[1]->error(), ContainsSubstring("no-such-host.invalid:"));
  spec.endpoint.host = "LocalHost";
  spec.join_timeout = 10s;
  cluster.agents.pop_back();
  cluster.add(spec);
  REQUIRE(cluster.until_round(0));
}

}  // namespace drun::test
