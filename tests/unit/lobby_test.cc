#include "rendezvous/lobby.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace drun::rendezvous {

using namespace std::chrono_literals;
using Time = Lobby::Time;

TEST_CASE("who stays too long goes, the oldest first") {
  Lobby lobby(10, 5s);
  const Time now{};
  CHECK_FALSE(lobby.deadline());
  CHECK_FALSE(lobby.arrive(1, "a", now));
  CHECK_FALSE(lobby.arrive(2, "a", now + 1s));
  CHECK(lobby.deadline() == now + 5s);
  CHECK_FALSE(lobby.overdue(now + 4999ms));
  CHECK(lobby.overdue(now + 5s) == 1U);
  CHECK_FALSE(lobby.overdue(now + 5s));
  CHECK(lobby.deadline() == now + 6s);
  lobby.leave(2);
  CHECK_FALSE(lobby.deadline());
  CHECK(lobby.size() == 0);
}

TEST_CASE("when one too many comes, the most crowded origin loses its oldest") {
  Lobby lobby(4, 5s);
  const Time now{};
  lobby.arrive(1, "member", now);
  lobby.arrive(2, "crowd", now);
  lobby.arrive(3, "crowd", now);
  lobby.arrive(4, "crowd", now);
  CHECK(lobby.arrive(5, "crowd", now) == 2U);
  CHECK(lobby.arrive(6, "other", now) == 3U);
  CHECK(lobby.has(1));
  CHECK(lobby.has(6));
  CHECK(lobby.size() == 4);
}

TEST_CASE("leaving twice, or never having come, is nothing") {
  Lobby lobby(4, 5s);
  lobby.leave(9);
  lobby.arrive(1, "a", Time{});
  lobby.leave(1);
  lobby.leave(1);
  CHECK_FALSE(lobby.evict());
  CHECK(lobby.size() == 0);
}

TEST_CASE("no crowd keeps out one that needs a moment, and there are never more than may be") {
  const auto seed = static_cast<unsigned>(GENERATE(1, 2, 3));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Lobby lobby(64, 10s);
  Time now{};
  Lobby::Guest last = 0;
  for (int round = 0; round < 100; ++round) {
    const Lobby::Guest member = ++last;
    lobby.arrive(member, "member", now);
    for (int i = 0; i < 500; ++i) {  // from a few places, within a second or so
      now += std::chrono::milliseconds(random() % 3);
      lobby.arrive(++last, std::to_string(random() % 8), now);
      const Lobby::Guest other = last - random() % 20;
      if (random() % 3 == 0 && other != member) lobby.leave(other);
      while (lobby.overdue(now)) {
      }
      REQUIRE(lobby.size() <= 64);
      REQUIRE(lobby.has(member));
    }
    lobby.leave(member);
  }
  while (lobby.evict()) {
  }
  CHECK(lobby.size() == 0);
  CHECK_FALSE(lobby.deadline());
}

}  // namespace drun::rendezvous
