#include "rendezvous/base/log.h"

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

}  // namespace drun
