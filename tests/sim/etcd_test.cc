// Simulated elections through etcd. See seeds.h for the choice of seeds.

#include "tests/sim/etcd_network.h"
#include "tests/sim/seeds.h"
#include "tests/support/catch.h"

namespace drun::test {
namespace {

using namespace std::chrono_literals;
using Network = EtcdNetwork;

EtcdWeather random_etcd_weather(std::uint32_t seed) {
  std::mt19937 random(seed ^ 0xe7cdU);
  const auto up_to = [&random](unsigned most) { return static_cast<int>(random() % (most + 1)); };
  EtcdWeather weather;
  weather.agents = 1 + up_to(5);
  weather.crashes = up_to(5);
  weather.leader_kills = up_to(4);
  weather.freezes = up_to(6);
  weather.cuts = up_to(6);
  weather.outages = up_to(4);
  weather.drift = up_to(8);
  weather.lost = up_to(2) == 0 ? up_to(30) : up_to(1) * up_to(5);
  weather.longest_delay_ms = up_to(4) == 0 ? 1 + up_to(3000) : 1 + up_to(60);
  weather.resigns = up_to(3);
  weather.watch_fails = up_to(3) == 0 ? 100 : up_to(20);
  return weather;
}

// Returns a network in which all agents are up and one leads.
Network settled_agents(int agents, std::uint32_t seed) {
  Network network({.agents = agents, .longest_delay_ms = 5}, seed);
  for (int i = 0; i < agents; ++i) network.start(i);
  network.run_for(1s);
  REQUIRE(network.leader());
  return network;
}

}  // namespace

TEST_CASE("with etcd an agent leads at once when a job starts") {
  for (const std::uint32_t seed : seeds(50)) {
    INFO(replay(seed));
    Network network({.agents = 4, .longest_delay_ms = 5}, seed);
    for (int i = 0; i < 4; ++i) network.start(i);
    network.run_for(100ms);
    REQUIRE(network.leader());
    CHECK(network.leads() == 1);
    CHECK(network.broken().empty());
  }
}

TEST_CASE("when the leader crashes, another agent leads within a lease plus half a second") {
  for (const std::uint32_t seed : seeds(100)) {
    INFO(replay(seed));
    Network network = settled_agents(3, seed);
    network.run_for(Network::Milliseconds(seed * 37 % 2000));
    const int first = *network.leader();
    const auto crashed = network.now();
    network.crash(first);
    network.run_for(7s);
    REQUIRE(network.broken().empty());
    REQUIRE(network.leader());
    CHECK(*network.leader() != first);
    // The watches of the other agents report that the key is gone.
    CHECK(network.led_since() - crashed < 5500ms + 100ms);
  }
}

TEST_CASE("when the leader resigns, another agent leads as soon as its watch reports it") {
  for (const std::uint32_t seed : seeds(100)) {
    INFO(replay(seed));
    Network network = settled_agents(3, seed);
    network.run_for(Network::Milliseconds(seed * 37 % 2000));
    const int first = *network.leader();
    const auto then = network.now();
    network.resign(first);
    network.run_for(2s);
    REQUIRE(network.broken().empty());
    REQUIRE(network.leader());
    CHECK(*network.leader() != first);
    CHECK(network.led_since() - then < 100ms);
  }
}

TEST_CASE("a leader that cannot reach etcd stops leading before another agent can lead") {
  for (const std::uint32_t seed : seeds(100)) {
    INFO(replay(seed));
    Network network = settled_agents(3, seed);
    const int first = *network.leader();
    network.cut(first, true);
    network.run_for(4100ms);
    CHECK_FALSE(network.leader());
    network.run_for(4s);
    REQUIRE(network.broken().empty());
    REQUIRE(network.leader());
    CHECK(*network.leader() != first);
    network.cut(first, false);
    network.run_for(5s);
    CHECK(network.leads() == 2);
    CHECK(network.broken().empty());
  }
}

TEST_CASE("a leader keeps its lead while etcd is unavailable for less than the lease") {
  for (const std::uint32_t seed : seeds(100)) {
    INFO(replay(seed));
    Network network = settled_agents(3, seed);
    const auto first = network.leader();
    network.run_for(Network::Milliseconds(seed * 41 % 2000));
    network.take_etcd_away(true);
    network.run_for(2500ms);
    CHECK(network.leader() == first);
    network.take_etcd_away(false);
    network.run_for(10s);
    CHECK(network.leader() == first);
    CHECK(network.leads() == 1);
    CHECK(network.broken().empty());
  }
}

TEST_CASE("an agent leads soon after etcd returns from a long outage") {
  for (const std::uint32_t seed : seeds(100)) {
    INFO(replay(seed));
    Network network = settled_agents(3, seed);
    network.take_etcd_away(true);
    network.run_for(60s);
    CHECK_FALSE(network.leader());
    network.take_etcd_away(false);
    network.run_for(2s);
    CHECK(network.leader());
    CHECK(network.broken().empty());
  }
}

TEST_CASE("a leader that finishes its job leaves nothing in etcd") {
  Network network = settled_agents(3, 1);
  network.run_for(5s);
  const int first = *network.leader();
  for (int i = 0; i < 3; ++i) {
    if (i != first) network.crash(i);
  }
  network.finish(first);
  network.run_for(200ms);
  CHECK_FALSE(network.leader());
  CHECK_FALSE(network.etcd().sight().leader);
  CHECK_FALSE(network.etcd().sight().state);
}

TEST_CASE("if etcd ends every watch, a crashed leader is replaced after the next poll") {
  for (const std::uint32_t seed : seeds(50)) {
    INFO(replay(seed));
    Network network({.agents = 3, .longest_delay_ms = 5, .watch_fails = 100}, seed);
    for (int i = 0; i < 3; ++i) network.start(i);
    network.run_for(1s);
    REQUIRE(network.leader());
    const int first = *network.leader();
    const auto crashed = network.now();
    network.crash(first);
    network.run_for(8s);
    REQUIRE(network.broken().empty());
    REQUIRE(network.leader());
    CHECK(*network.leader() != first);
    CHECK(network.led_since() - crashed < 5500ms + 1563ms + 100ms);
  }
}

// docs/internals/election.md has the measured numbers.
TEST_CASE(
    "1,000 agents leave etcd almost idle, and few of them claim the lead when the leader crashes") {
  const int agents = GENERATE(50, 1000);
  Network network({.agents = agents, .longest_delay_ms = 5}, 7);
  for (int i = 0; i < agents; ++i) network.start(i);
  network.run_for(5s);
  REQUIRE(network.leader());
  const EtcdLoad start = network.take_load();
  network.run_for(10s);
  network.take_load();
  network.run_for(120s);
  const EtcdLoad steady = network.take_load();
  CHECK(network.etcd().lease_count() == 2);
  network.crash(*network.leader());
  network.run_for(10s);
  REQUIRE(network.broken().empty());
  REQUIRE(network.leader());
  const EtcdLoad election = network.take_load();
  INFO(agents << " agents: start: " << start.transactions << " transactions, " << start.grants
              << " grants; steady: " << static_cast<double>(steady.transactions) / 120
              << " transactions/s; election: " << election.transactions << " transactions, "
              << election.grants << " grants, " << election.revokes << " revokes");
  // The leader's reads and writes, and one read per other agent every 12 leases.
  CHECK(steady.transactions < 120 * 2 + agents * 120 / 60);
  CHECK(steady.grants == 0);
  CHECK(start.grants <= agents / 10 + 10);
  CHECK(election.grants <= agents / 10 + 10);
  // The leader's key, the state, and the lease of the crashed leader's state.
  CHECK(network.etcd().lease_count() <= 3);
}

TEST_CASE("in any weather etcd lets no two agents lead and no round number be used twice") {
  long runs = 0;
  long leads = 0;
  long rounds = 0;
  for (const std::uint32_t seed : seeds(1000 / kRunShare)) {
    const auto ran = run_seed<Network>(random_etcd_weather(seed), seed,
                                       [](Network& network) { network.run_all(); });
    const Network& network = *ran;
    ++runs;
    leads += network.leads();
    rounds += network.rounds();
  }
  CHECK((runs < 100 || (leads > runs && rounds > 10 * runs)));
}

}  // namespace drun::test
