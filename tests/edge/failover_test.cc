// Tests the loss of a coordinator and the takeover by another, with several endpoints in one
// process on loopback.
#include <future>

#include "rendezvous/store/client.h"
#include "tests/support/agents.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun::test {

using namespace std::chrono_literals;

namespace {

// An agent, and the server of its seat if it has one.
struct Site {
  Site(asio::io_context& io, JoinSpec join) {
    if (join.seat) {
      JoinSpec there = join;
      there.endpoint = join.seats[*join.seat];
      there.master_addr = there.endpoint.host;
      auto opened = rendezvous::Server::open(
          io, there, log.log(), [this] { server.reset(); },
          [this](const Endpoint& leader, std::uint64_t term) {
            leaders.push_back(leader);
            if (agent) agent->client.name_leader(leader, term);
          });
      REQUIRE(opened);
      server = *std::move(opened);
    }
    agent = std::make_unique<TestAgent>(io, join);
    agent->client.start();
  }
  // Ends the site as if its process had been killed.
  void die() {
    agent->client.close();
    if (server) server->stop();
  }

  LogLines log;
  std::vector<Endpoint> leaders;
  std::unique_ptr<rendezvous::Server> server;
  std::unique_ptr<TestAgent> agent;
};

// Three seats, and an agent without one.
struct Sites {
  explicit Sites(std::optional<Secret> secret = std::nullopt) {
    spec = join_spec(0, 4, 0);
    spec.secret = std::move(secret);
    spec.master_addr.clear();
    spec.elastic = ElasticSpec{.min_nodes = 2, .min_uptime = 50ms};
    spec.heartbeat_timeout = 1500ms;
    spec.join_timeout = 20s;
    for (int i = 0; i < 3; ++i)
      spec.seats.push_back({"127.0.0.1", static_cast<std::uint16_t>(testing::free_port())});
  }
  Site& add(std::optional<std::size_t> seat) {
    JoinSpec join = spec;
    join.node_rank = static_cast<int>(sites.size());  // the host is named after it
    join.seat = seat;
    join.is_coordinator = false;
    sites.push_back(std::make_unique<Site>(io, join));
    return *sites.back();
  }
  bool until(const std::function<bool()>& condition) { return run_until(io, condition); }
  bool until_round(int round, const std::vector<std::size_t>& of) {
    return until([&] {
      return std::all_of(of.begin(), of.end(), [&](std::size_t i) {
        return sites[i]->agent->world && sites[i]->agent->world->round == round;
      });
    });
  }
  // Runs a store operation on another thread, as a worker would.
  template <typename Action>
  auto with_store(std::size_t seat, Action action) {
    auto done = std::async(std::launch::async, [endpoint = spec.seats[seat], action] {
      auto store = StoreClient::connect({.endpoint = endpoint, .timeout = 10s});
      return action(*store);
    });
    REQUIRE(until([&] { return done.wait_for(0s) == std::future_status::ready; }));
    return done.get();
  }

  asio::io_context io{1};
  JoinSpec spec;
  std::vector<std::unique_ptr<Site>> sites;
};

}  // namespace

TEST_CASE(
    "the first endpoint coordinates, and if it is lost, the next takes over with a new store") {
  const bool has_secret = GENERATE(false, true);
  Sites job(has_secret ? std::optional(test_secret()) : std::nullopt);
  job.add(std::nullopt);
  for (const std::size_t seat : {2U, 1U, 0U}) job.add(seat);
  REQUIRE(job.until_round(0, {0, 1, 2, 3}));
  CHECK(job.sites[0]->agent->world->node_count == 4);
  CHECK(job.sites[0]->agent->world->master_port == job.spec.seats[0].port);
  CHECK(job.sites[3]->agent->world->node_rank == 0);
  CHECK(job.sites[3]->server->is_leading());
  CHECK(
      job.with_store(0, [](StoreClient& store) { return store.set("key", "value").has_value(); }));

  job.sites[3]->die();
  REQUIRE(job.until_round(1, {0, 1, 2}));
  const World& world = *job.sites[0]->agent->world;
  CHECK(world.node_count == 3);
  CHECK(world.restarts == 0);
  CHECK(world.master_addr == "127.0.0.1");
  CHECK(world.master_port == job.spec.seats[1].port);
  CHECK(job.sites[2]->agent->world->node_rank == 0);
  CHECK(job.sites[2]->server->is_leading());
  CHECK_FALSE(job.sites[1]->server->is_leading());
  CHECK(job.with_store(1, [](StoreClient& store) {
    const auto is_kept = store.check(std::vector<std::string>{"key"});
    return is_kept && !*is_kept;
  }));

  for (const std::size_t i : {0U, 1U, 2U}) job.sites[i]->agent->client.report_success(1);
  REQUIRE(job.until([&] {
    return job.sites[0]->agent->outcome && job.sites[1]->agent->outcome &&
           job.sites[2]->agent->outcome;
  }));
  for (const std::size_t i : {0U, 1U, 2U})
    CHECK(job.sites[i]->agent->outcome->ending == Ending(Succeeded{}));
}

TEST_CASE("an endpoint with a different endpoint list logs the mismatch and elects no leader") {
  Sites job;
  job.spec.elastic->last_call_timeout = 200ms;
  Site& first = job.add(0);
  Site& second = job.add(1);
  std::swap(job.spec.seats[0], job.spec.seats[2]);
  Site& other = job.add(0);
  REQUIRE(job.until([&] { return other.log.has("write the same list on all nodes"); }));
  REQUIRE(job.until([&] { return first.agent->world || second.agent->world; }));
  CHECK_FALSE(other.server->is_leading());
  const auto count = [&other](std::string_view text) {
    return std::count_if(
        other.log.lines.begin(), other.log.lines.end(),
        [text](const std::string& line) { return line.find(text) != std::string::npos; });
  };
  REQUIRE(job.until([&] { return count("it does not answer ballots") >= 6; }));
  CHECK(count("takes no part in the election") == 2);  // once for each of the other endpoints
}

TEST_CASE("a coordinator without an endpoint list rejects requests for votes") {
  TestCluster cluster(2);
  Sites job;
  job.spec.run_id = "edge";
  job.spec.seats[2] = {"127.0.0.1", cluster.port()};
  Site& seat = job.add(0);
  REQUIRE(run_until(job.io, [&] {
    cluster.io.poll();
    return seat.log.has("no list of endpoints was given there");
  }));
  CHECK(cluster.log.has("it asks for votes"));
}

}  // namespace drun::test
