#include "rendezvous/net/endpoint.h"

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("endpoints are parsed in all forms that users write") {
  const auto [text, host, port] = GENERATE(table<std::string, std::string, int>({
      {"node0", "node0", 29400},
      {"node0:1234", "node0", 1234},
      {"10.0.0.5:0", "10.0.0.5", 0},
      {"[fd00::1]", "fd00::1", 29400},
      {"[fd00::1]:99", "fd00::1", 99},
      {"::1", "::1", 29400},
      {"fe80::1%eth0:7", "fe80::1%eth0", 7},
      {"fd00::a:29500", "fd00::a", 29500},
      {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8", 29400},
  }));
  const Result<Endpoint> endpoint = parse_endpoint(text, 29400);
  REQUIRE(endpoint.has_value());
  CHECK(endpoint->host == host);
  CHECK(endpoint->port == port);
}

TEST_CASE("an invalid endpoint is rejected with its text") {
  const std::string text = GENERATE("", ":29500", "[::1", "[::1]x", "host:", "host:port",
                                    "host:70000", "a b:1", "h/x:1");
  const Result<Endpoint> endpoint = parse_endpoint(text, 1);
  REQUIRE_FALSE(endpoint.has_value());
  CHECK(endpoint.error().code == ErrorCode::Usage);
  CHECK_THAT(endpoint.error().message, ContainsSubstring("\"" + text + "\""));
}

TEST_CASE("a formatted endpoint can be parsed again") {
  CHECK(to_string(Endpoint{.host = "node0", .port = 1}) == "node0:1");
  CHECK(to_string(Endpoint{.host = "::1", .port = 29500}) == "[::1]:29500");
}

TEST_CASE("the port of a job depends on its name only, and lies above the ephemeral ports") {
  // Processes of different builds of drun must agree, so the values are fixed.
  CHECK(derived_port("") == 64965);
  CHECK(derived_port("Open MPI 1060044801") != derived_port("Open MPI 1060044802"));
  for (int job = 0; job < 1000; ++job) {
    const int port = derived_port(std::to_string(job));
    CHECK((port >= kFirstDerivedPort && port < kFirstDerivedPort + kDerivedPorts));
  }
}

}  // namespace drun
