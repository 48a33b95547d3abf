#include "agent/supervise/coordinator_seat.h"

#include <unistd.h>

#include <optional>

#include "tests/support/catch.h"

namespace drun::agent {

TEST_CASE("an agent gets the lowest slot of its job that no living agent of this host holds") {
  const std::string job = "host_slot_test/" + std::to_string(getpid());
  std::optional<HostSlot> first = HostSlot::take(job);
  const HostSlot second = HostSlot::take(job);
  CHECK(first->number() == 0);
  CHECK(second.number() == 1);
  CHECK(HostSlot::take(job + "/other").number() == 0);
  first.reset();
  CHECK(HostSlot::take(job).number() == 0);
  CHECK(HostSlot::take(job).number() == 0);  // the previous slot has been released
}

}  // namespace drun::agent
