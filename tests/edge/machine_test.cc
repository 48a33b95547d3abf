// Tests the allocation of the tests' ports, and their time limits.
#include "tests/support/machine.h"

#include <fstream>
#include <set>
#include <sstream>

#include "drun/key_store.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"
#include "tests/support/raw_socket.h"

namespace drun::test {
namespace {

int first_ephemeral_port() {
  int first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first;
}

}  // namespace

TEST_CASE("concurrent test processes get different ports, below the ephemeral range") {
  constexpr int kProcesses = 4;
  constexpr int kPorts = 2 * PortBlock::kSize;  // more than one block each
  std::set<int> taken;
  // The parent has a block too; its children must not continue it.
  for (int i = 0; i < 3; ++i) taken.insert(free_port());
  REQUIRE(taken.size() == 3);
  const StoreProcess store;
  const auto ends = run_ranks(
      {.size = kProcesses, .port = store.port()}, [port = store.port()](int, const Say& say) {
        for (int i = 0; i < kPorts; ++i) say(std::to_string(free_port()));
        // Each process keeps its blocks until all processes have theirs.
        const auto client = connect_key_store("127.0.0.1", port, scaled(std::chrono::seconds(20)));
        client->add("done", 1, scaled(std::chrono::seconds(20)));
        while (client->add("done", 0, scaled(std::chrono::seconds(20))) < kProcesses) {
        }
      });
  for (const RankEnd& end : ends) {
    CHECK(end.exit_code == 0);
    std::istringstream ports(end.said);
    for (int port = 0; ports >> port;) {
      CHECK(taken.insert(port).second);
      CHECK(port >= 1024);
      if (first_ephemeral_port() > 11'000) CHECK(port < first_ephemeral_port());
    }
  }
  CHECK(taken.size() == 3 + kProcesses * kPorts);
}

TEST_CASE("a port on which something listens is not free") {
  const std::uint16_t first = free_port();
  const auto next = static_cast<std::uint16_t>(first + 1);
  const RawSocket server = RawSocket::listening(next);
  if (server.is_open()) CHECK(free_port() != next);
}

TEST_CASE("time limits are unchanged in an ordinary build and longer under a sanitizer") {
  STATIC_REQUIRE(scaled(std::chrono::seconds(2)) == std::chrono::seconds(2 * kSlowdown));
  STATIC_REQUIRE((kSlowdown == 1 || kSlowdown == 3 || kSlowdown == 5));
}

}  // namespace drun::test
