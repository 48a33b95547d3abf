#include "tests/support/catch.h"
#include "worker_lib/base/cores.h"

namespace drun::worker {

TEST_CASE("a cgroup's CPU quota is a number of cores or absent") {
  CHECK(cores_of_quota("150000 100000\n") == 1.5);
  CHECK(cores_of_quota("200000 50000") == 4.0);
  for (const char* text : {"max 100000\n", "", "5", "5 ", "-1 100", "100 0", "a b", "1e400 1"}) {
    INFO(text);
    CHECK_FALSE(cores_of_quota(text));
  }
}

TEST_CASE("a process uses no more cores than it is bound to") {
  CoreMask left;
  left.set(0).set(70);
  CHECK(own_cores().any());
  CHECK(usable_cores(left) <= 2);
}

TEST_CASE("at least one core is usable") { CHECK(usable_cores() >= 1); }

}  // namespace drun::worker
