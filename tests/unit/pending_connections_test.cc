#include "rendezvous/net/pending_connections.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace drun::rendezvous {

using namespace std::chrono_literals;
using Time = PendingConnections::Time;

TEST_CASE("pending connections expire after the timeout, the oldest first") {
  PendingConnections pending(10, 5s);
  const Time now{};
  CHECK_FALSE(pending.next_expiry());
  CHECK_FALSE(pending.add(1, "a", now));
  CHECK_FALSE(pending.add(2, "a", now + 1s));
  CHECK(pending.next_expiry() == now + 5s);
  CHECK_FALSE(pending.take_expired(now + 4999ms));
  CHECK(pending.take_expired(now + 5s) == 1U);
  CHECK_FALSE(pending.take_expired(now + 5s));
  CHECK(pending.next_expiry() == now + 6s);
  pending.remove(2);
  CHECK_FALSE(pending.next_expiry());
  CHECK(pending.size() == 0);
}

TEST_CASE("at the limit the origin with the most pending connections loses its oldest") {
  PendingConnections pending(4, 5s);
  const Time now{};
  pending.add(1, "member", now);
  pending.add(2, "crowd", now);
  pending.add(3, "crowd", now);
  pending.add(4, "crowd", now);
  CHECK(pending.add(5, "crowd", now) == 2U);
  CHECK(pending.add(6, "other", now) == 3U);
  CHECK(pending.contains(1));
  CHECK(pending.contains(6));
  CHECK(pending.size() == 4);
}

TEST_CASE("at the limit the oldest connection is evicted when each origin has one") {
  PendingConnections pending(3, 5s);
  const Time now{};
  pending.add(1, "10.0.0.1", now);
  pending.add(2, "10.0.0.9", now);
  pending.add(3, "10.0.0.5", now);
  CHECK(pending.add(4, "10.0.0.7", now) == 1U);
  CHECK(pending.add(5, "10.0.0.2", now) == 2U);
  CHECK(pending.add(6, "10.0.0.3", now) == 3U);
  CHECK(pending.add(7, "10.0.0.4", now) == 4U);
}

TEST_CASE("among origins with equally many connections the oldest connection is evicted") {
  PendingConnections pending(6, 5s);
  const Time now{};
  pending.add(1, "c", now);
  pending.add(2, "a", now);
  pending.add(3, "b", now);
  pending.add(4, "b", now);
  pending.add(5, "a", now);
  pending.remove(1);
  pending.add(6, "c", now);
  pending.add(7, "c", now);
  CHECK(pending.evict() == 2U);
  CHECK(pending.evict() == 3U);
  CHECK(pending.evict() == 6U);
  CHECK(pending.evict() == 4U);
  CHECK(pending.evict() == 5U);
  CHECK(pending.evict() == 7U);
  CHECK_FALSE(pending.evict());
}

TEST_CASE("removing an unknown pending connection does nothing") {
  PendingConnections pending(4, 5s);
  pending.remove(9);
  pending.add(1, "a", Time{});
  pending.remove(1);
  pending.remove(1);
  CHECK_FALSE(pending.evict());
  CHECK(pending.size() == 0);
}

TEST_CASE("a flood from a few origins does not evict a connection that needs a moment") {
  const auto seed = static_cast<unsigned>(GENERATE(1, 2, 3));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  PendingConnections pending(64, 10s);
  Time now{};
  PendingConnections::Id last = 0;
  for (int round = 0; round < 100; ++round) {
    const PendingConnections::Id member = ++last;
    pending.add(member, "member", now);
    for (int i = 0; i < 500; ++i) {  // from a few origins, within about a second
      now += std::chrono::milliseconds(random() % 3);
      pending.add(++last, std::to_string(random() % 8), now);
      const PendingConnections::Id other = last - random() % 20;
      if (random() % 3 == 0 && other != member) pending.remove(other);
      while (pending.take_expired(now)) {
      }
      REQUIRE(pending.size() <= 64);
      REQUIRE(pending.contains(member));
    }
    pending.remove(member);
  }
  while (pending.evict()) {
  }
  CHECK(pending.size() == 0);
  CHECK_FALSE(pending.next_expiry());
}

}  // namespace drun::rendezvous
