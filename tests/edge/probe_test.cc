// Tests the probe's connections on loopback.
#include <algorithm>
#include <chrono>
#include <thread>

#include "drun/backend.h"
#include "rendezvous/base/bytes.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"
#include "tests/support/raw_socket.h"
#include "worker_lib/gloo/gloo_backend.h"
#include "worker_lib/tools/probe/look.h"
#include "worker_lib/tools/probe/pair_rate.h"
#include "worker_lib/tools/probe/visits.h"

namespace drun::probe {
namespace {

const std::string kToken = "0123456789abcdef";

}  // namespace

TEST_CASE("a visitor with the token gets small and large answers, and clocks are compared") {
  const auto host = Host::open(kToken);
  REQUIRE(host);
  const std::uint16_t port = (*host)->port();
  const auto nobody = static_cast<std::uint16_t>(testing::free_port());
  const auto visits = visit_all(
      {{1, "127.0.0.1", port}, {2, "::1", port}, {3, "127.0.0.1", nobody}, {4, "x", 1}}, kToken);
  REQUIRE(visits.size() == 4);
  for (const std::size_t i : {0U, 1U}) {
    INFO(visits[i].reason);
    CHECK(visits[i].has_arrived);
    CHECK(visits[i].large_ones_too);
    CHECK(visits[i].reason.empty());
    CHECK(visits[i].round_trip_s > 0);
    // Both ends use the same clock, so the offset lies within its bound.
    CHECK(std::abs(visits[i].clock_ahead_s) <= visits[i].clock_bound_s + 1e-6);
  }
  CHECK_FALSE(visits[2].has_arrived);
  CHECK(visits[2].reason == "connection refused");
  CHECK(visits[3].reason == "\"x\" is no address");
}

TEST_CASE("a visitor without the token, or with too large a request, gets no answer") {
  const auto host = Host::open(kToken);
  REQUIRE(host);
  const auto visits = visit_all({{1, "127.0.0.1", (*host)->port()}}, "another token 16");
  CHECK_FALSE(visits[0].has_arrived);
  const RawSocket socket = RawSocket::connect_to((*host)->port());
  std::string question = kToken;
  ByteWriter(question).u32(1U << 30);
  REQUIRE(socket.say(question));
  CHECK(socket.hears_end());
}

TEST_CASE("this machine's facts are found, and the loopback is an interface with an MTU") {
  NodeFacts facts;
  look_at_machine(facts);
  CHECK_FALSE(facts.host.empty());
  CHECK(facts.memory_bytes > 0);
  REQUIRE(look_at_network(facts, "127.0.0.1", 29500, ""));
  CHECK(facts.network == "lo");
  CHECK(facts.address == "127.0.0.1");
  CHECK(facts.mtu > 0);
  CHECK_FALSE(look_at_network(facts, "127.0.0.1", 29500, "no-such-interface"));
}

// The packages are built without Gloo.
TEST_CASE("two nodes measure the rate between them in a build without Gloo") {
  register_backend("gloo", [](const BackendContext&) -> std::unique_ptr<Backend> {
    throw BackendFailure(WorkerError::Kind::Unsupported, "built without Gloo");
  });
  const auto store = make_memory_key_store();
  PairRate rates[2];
  std::thread other([&] { rates[1] = measure_pair(pairings(1, 2).front(), store, "lo"); });
  rates[0] = measure_pair(pairings(0, 2).front(), store, "lo");
  other.join();
  register_backend("gloo", worker::connect_gloo);
  for (const PairRate& rate : rates) {
    CHECK(rate.problem.empty());
    CHECK(rate.gbytes_per_s > 0);
  }
}

TEST_CASE("host names are looked up") {
  Names names({{.node = 3, .host = "localhost", .address = "127.0.0.1"}});
  const auto found = names.wait_until(std::chrono::steady_clock::now() + std::chrono::seconds(30));
  REQUIRE(found.size() == 1);
  CHECK(found[0].of == 3);
  CHECK(found[0].is_done);
  CHECK_FALSE(names.is_hanging());
  const auto& addresses = found[0].addresses;
  const bool is_v4 = std::find(addresses.begin(), addresses.end(), "127.0.0.1") != addresses.end();
  CHECK((is_v4 || addresses == std::vector<std::string>{"::1"}));
}

}  // namespace drun::probe
