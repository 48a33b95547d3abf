#include "rendezvous/base/log.h"

#include <string>
#include <vector>

#include "rendezvous/leader/leader_election.h"
#include "tests/support/catch.h"

namespace drun {

TEST_CASE("lines beyond the limit per second are dropped and counted") {
  LogLimit limit(2);
  const LogLimit::Time start{std::chrono::hours(1)};
  CHECK(limit.allows(start));
  CHECK(limit.allows(start));
  CHECK(limit.left_out().empty());
  CHECK_FALSE(limit.allows(start + std::chrono::milliseconds(999)));
  CHECK_FALSE(limit.allows(start + std::chrono::milliseconds(999)));
  CHECK(limit.allows(start + std::chrono::seconds(1)));
  CHECK(limit.left_out() == " left_out=2");
  CHECK(limit.left_out().empty());
}

TEST_CASE("each refusal of a seat is logged once, and then one at growing intervals") {
  rendezvous::RefusalLimit limit;
  const LogLimit::Time start{std::chrono::hours(1)};
  std::vector<int> seconds;
  for (int second = 0; second < 5 * 3600; ++second) {
    const LogLimit::Time now = start + std::chrono::seconds(second);
    for (const char* const text : {"one", "two"})
      if (limit.allows(text, now)) seconds.push_back(second);
  }
  CHECK(seconds == std::vector{0, 0, 30, 90, 210, 450, 930, 1890, 3810, 7410, 11010, 14610});
  for (int i = 0; i < 1000; ++i) limit.allows(std::to_string(i), start + std::chrono::hours(5));
  CHECK_FALSE(limit.allows("another", start + std::chrono::hours(5)));
}

}  // namespace drun
